"""Hugging Face's Trainer: `compute_loss` with the index of the samples as a column.

A tiny random BERT learns to rank texts that contain a certain token first. The metric of the
validation set chooses the best checkpoint and stops the run early.

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

    def compute_loss(self, model, inputs, return_outputs=False, **_):
        outputs = model(inputs["input_ids"])
        if model.training:
            loss = self.criterion(outputs.logits, inputs["index"])
        else:  # a batch has no such loss: evaluate() computes that of the validation set
            loss = torch.tensor(torch.nan)
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
criterion = fcco.losses.APLoss(label[train])
validation = criterion.objective.on(label[valid])


def evaluate(prediction):
    """What the Trainer calls with the outputs for the whole validation set, in their order."""
    scores = torch.as_tensor(prediction.predictions)
    return {"objective": validation.exact(scores).item(), "ap": validation.metric(scores)}


with tempfile.TemporaryDirectory() as directory:
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
    trainer = RankingTrainer(
        model,
        arguments,
        train_dataset=data,
        eval_dataset=valid_data,
        compute_metrics=evaluate,
        callbacks=[transformers.EarlyStoppingCallback(early_stopping_patience=5)],
        criterion=criterion,
    )
    trainer.remove_callback(transformers.PrinterCallback)
    print(f"step 0: 1 - average precision {1 - trainer.evaluate()['eval_ap']:.4f}")
    trainer.train()
    found = trainer.evaluate()["eval_ap"]
    print(f"step {trainer.state.global_step}: 1 - average precision {1 - found:.4f}")
