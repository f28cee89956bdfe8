"""Reading torch's description of a checkpoint of several ranks without running what is in it."""

import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from fcco_lab.files import regular

if TYPE_CHECKING:
    from torch.distributed.checkpoint.filesystem import FileSystemReader

__all__ = ["reader_of"]

_CHECKPOINT = "torch.distributed.checkpoint"

_NAMES = {
    "torch": {"Size"},
    "torch.serialization": {"_get_layout"},
    f"{_CHECKPOINT}.filesystem": {"_StorageInfo"},
    f"{_CHECKPOINT}.metadata": {
        "ChunkStorageMetadata",
        "Metadata",
        "MetadataIndex",
        "StorageMeta",
        "TensorProperties",
        "TensorStorageMetadata",
        "_MEM_FORMAT_ENCODING",
    },
    "pathlib": {"PosixPath", "WindowsPath"},
    "pathlib._local": {"PosixPath", "WindowsPath"},
}
"""All that a description is made of, besides the names of precisions."""


class _Descriptions(pickle.Unpickler):
    """``pickle`` would call whatever a file names."""

    def find_class(self, module: str, name: str) -> Any:
        precision = module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)
        if not precision and name not in _NAMES.get(module, ()):
            raise ValueError(f"it is not one of ours: it names {module}.{name}")
        return super().find_class(module, name)


def reader_of(directory: Path) -> "FileSystemReader":
    """A reader of the files in ``directory``, for ``torch.distributed.checkpoint.load``.

    Its ``read_metadata`` raises a ``ValueError`` for what is not a description.
    """
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.metadata import Metadata

    class Reader(FileSystemReader):
        """torch's, but for its trust."""

        def read_metadata(self, *arguments: Any, **more: Any) -> Metadata:
            try:
                with regular(directory / ".metadata").open("rb") as file:
                    found = _Descriptions(file).load()
            except (OSError, MemoryError, ValueError):
                raise
            except Exception as error:  # pickle has one for every way to be wrong
                raise ValueError(f"it is not one of ours: {type(error).__name__}") from error
            if not isinstance(found, Metadata):
                raise ValueError(f"it is not one of ours: a {type(found).__name__}")
            return found

    return Reader(directory)
