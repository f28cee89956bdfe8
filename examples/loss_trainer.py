"""Hugging Face's Trainer: `compute_loss` with the index of the samples as a column.

A tiny random BERT learns to rank texts that contain a certain token first.

pip install fcco transformers accelerate
python examples/loss_trainer.py [--quick]
"""

import sys
import tempfile

import torch
import transformers
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

import fcco

transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
torch.manual_seed(0)
tokens = torch.randint(5, 60, (600, 12))
label = ((tokens == 7) | (tokens == 8)).any(1).long()  # a third of them
data = fcco.data.WithIndex([{"input_ids": row} for row in tokens])  # adds the key "index"


class RankingTrainer(Trainer):
    """Trains for average precision over the whole training set."""

    def __init__(self, *args, criterion, **options):
        super().__init__(*args, **options)
        self.criterion = criterion

    def compute_loss(self, model, inputs, return_outputs=False, **_):
        index = inputs.pop("index")
        outputs = model(**inputs)
        loss = self.criterion(outputs.logits, index)
        return (loss, outputs) if return_outputs else loss


model = BertForSequenceClassification(
    BertConfig(
        vocab_size=60,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=16,
        num_labels=1,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
)
criterion = fcco.losses.APLoss(label)


def objective():
    model.eval()
    with torch.no_grad():
        return 1 + criterion.exact(model(tokens).logits[:, 0]).item()


with tempfile.TemporaryDirectory() as directory:
    arguments = TrainingArguments(
        directory,
        num_train_epochs=4 if "--quick" in sys.argv else 20,
        per_device_train_batch_size=8,
        learning_rate=2e-3,
        max_grad_norm=1.0,
        lr_scheduler_type="cosine",
        remove_unused_columns=False,  # or the index would be dropped
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        logging_strategy="no",
    )
    print(f"step 0: 1 - average precision {objective():.4f}")
    trainer = RankingTrainer(model, arguments, train_dataset=data, criterion=criterion)
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train()
    print(f"step {trainer.state.global_step}: 1 - average precision {objective():.4f}")
