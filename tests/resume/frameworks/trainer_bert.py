# needs: transformers accelerate
# expected: exact
# mask: '(train_runtime|train_samples_per_second|train_steps_per_second|eval_runtime|eval_samples_per_second|eval_steps_per_second)': '?[\d.e-]+'?
"""The Trainer of transformers on a very small BERT, with evaluation."""
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed


def rows(count):
    return [{"input_ids": torch.randint(5, 200, (16,)), "labels": i % 2} for i in range(count)]


def main():
    set_seed(4)
    config = BertConfig(vocab_size=200, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, max_position_embeddings=32)
    model, train, held = BertForSequenceClassification(config), rows(640), rows(96)
    args = TrainingArguments("out", num_train_epochs=4, per_device_train_batch_size=8, gradient_accumulation_steps=2, learning_rate=1e-3, warmup_steps=20,
                             report_to=[], use_cpu=True, logging_steps=10, eval_strategy="epoch", save_strategy="no", disable_tqdm=True)
    trainer = Trainer(model, args, train_dataset=train, eval_dataset=held)
    result = trainer.train()
    print("end", result.global_step, f"{result.training_loss:.6f}", sum(p.double().sum().item() for p in model.parameters()))


if __name__ == "__main__":
    main()
