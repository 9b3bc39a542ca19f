# Nothing wrong here: hugging face accelerate.
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import AutoModelForSequenceClassification, get_linear_schedule_with_warmup
from parts import train_set, valid_set, metric

accelerator = Accelerator(gradient_accumulation_steps=4)
model = AutoModelForSequenceClassification.from_pretrained("bert-base-cased")
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
train_dl = DataLoader(train_set, shuffle=True, batch_size=16)
eval_dl = DataLoader(valid_set, batch_size=32)
sched = get_linear_schedule_with_warmup(optimizer, 100, len(train_dl) * 3 // 4)
model, optimizer, train_dl, eval_dl, sched = accelerator.prepare(model, optimizer, train_dl, eval_dl, sched)
for epoch in range(3):
    model.train()
    total_loss = 0
    for step, batch in enumerate(train_dl):
        with accelerator.accumulate(model):
            loss = model(**batch).loss
            total_loss += loss.detach().float()
            accelerator.backward(loss)
            optimizer.step()
            sched.step()
            optimizer.zero_grad()
    model.eval()
    for batch in eval_dl:
        with torch.no_grad():
            out = model(**batch)
        metric.add_batch(predictions=out.logits.argmax(-1), references=batch["labels"])
    accelerator.print(epoch, metric.compute(), total_loss.item() / len(train_dl))
    accelerator.save_state(f"epoch_{epoch}")
