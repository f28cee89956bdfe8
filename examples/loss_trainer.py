"""Hugging Face's Trainer: `compute_loss` with the index of the samples as a column.

A tiny random BERT learns to rank texts that contain a certain token first. The metric of the
validation set chooses the best checkpoint and stops the run early. A run that is resumed from a
checkpoint of the Trainer goes on with its table.

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
train, valid = slice(0, 450), slice(450, None)
# WithIndex adds the key "index" to a sample; of a data set of Hugging Face's datasets it would be
# dataset.map(lambda _, i: {"index": i}, with_indices=True). Collators keep the key.
data = fcco.data.WithIndex([{"input_ids": row} for row in tokens[train]])
valid_data = [
    {"input_ids": row, "labels": y} for row, y in zip(tokens[valid], label[valid], strict=True)
]


class RankingTrainer(Trainer):
    """Trains for average precision over the whole training set."""

    def __init__(self, *args, criterion, **options):
        super().__init__(*args, **options)
        self.criterion = criterion
        self.model_accepts_loss_kwargs = False  # or accumulated gradients would not be divided

    def compute_loss(self, model, inputs, return_outputs=False, **_):
        outputs = model(inputs["input_ids"])
        if model.training:
            loss = self.criterion(outputs.logits, inputs["index"])
        else:  # a batch has no such loss: evaluate() computes that of the validation set
            loss = torch.tensor(torch.nan)  # so metric_for_best_model must be named
        return (loss, outputs) if return_outputs else loss


class SaveTable(transformers.TrainerCallback):
    """Keeps the table with the Trainer's checkpoints, which hold only the model, and resumes it."""

    def __init__(self, criterion):
        self.criterion = criterion

    def path(self, arguments, state):
        return f"{arguments.output_dir}/checkpoint-{state.global_step}/criterion.pt"

    def on_save(self, arguments, state, control, **_):
        if state.is_world_process_zero:
            torch.save(self.criterion.state_dict(), self.path(arguments, state))

    def on_train_begin(self, arguments, state, control, **_):
        if state.global_step:
            self.criterion.load_state_dict(torch.load(self.path(arguments, state)))


def new_model():
    torch.manual_seed(1)
    config = BertConfig(
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
    return BertForSequenceClassification(config)


validation = fcco.objectives.AveragePrecision(label[valid])


def evaluate(prediction):
    """What the Trainer calls with the outputs for the whole validation set, in their order."""
    scores = prediction.predictions
    return {"objective": validation.exact(scores).item(), "ap": validation.metric(scores)}


def new_trainer(directory):
    arguments = TrainingArguments(
        directory,
        num_train_epochs=4 if "--quick" in sys.argv else 20,
        per_device_train_batch_size=8,
        learning_rate=2e-3,
        max_grad_norm=1.0,
        lr_scheduler_type="cosine",
        remove_unused_columns=False,  # or the index would be dropped
        eval_strategy="epoch",
        save_strategy="epoch",
        metric_for_best_model="ap",
        greater_is_better=True,
        load_best_model_at_end=True,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        logging_strategy="no",
    )
    criterion = fcco.losses.APLoss(label[train])
    stop = transformers.EarlyStoppingCallback(early_stopping_patience=5)
    trainer = RankingTrainer(
        new_model(),
        arguments,
        train_dataset=data,
        eval_dataset=valid_data,
        compute_metrics=evaluate,
        callbacks=[stop, SaveTable(criterion)],
        criterion=criterion,
    )
    trainer.remove_callback(transformers.PrinterCallback)
    return trainer


with tempfile.TemporaryDirectory() as directory:
    trainer = new_trainer(directory)
    print(f"step 0: 1 - average precision {1 - trainer.evaluate()['eval_ap']:.4f}")
    trainer.train()
    found = trainer.evaluate()["eval_ap"]
    print(f"step {trainer.state.global_step}: 1 - average precision {1 - found:.4f}")
    # The same run, resumed after its second epoch in a new process, say.
    resumed = new_trainer(directory)
    resumed.train(resume_from_checkpoint=f"{directory}/checkpoint-{2 * 57}")
    for name, tensor in trainer.criterion.state_dict().items():
        assert tensor.equal(resumed.criterion.state_dict()[name]), name
