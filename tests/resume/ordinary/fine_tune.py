# Fine-tuning: a pretrained trunk is frozen, the head is trained, then the upper half is thawed with a smaller rate.
# expected: exact
import copy
import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(6)


class Trunk(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv1d(1, 8, 5, padding=2), nn.BatchNorm1d(8), nn.ReLU())
        self.layer = nn.Sequential(nn.Conv1d(8, 16, 5, stride=2, padding=2), nn.BatchNorm1d(16), nn.ReLU())
        self.fc = nn.Linear(16 * 16, 3)

    def forward(self, x):
        return self.fc(self.layer(self.stem(x)).flatten(1))


x = torch.randn(900, 1, 32).cumsum(-1)
y = (x[:, 0, -1] > 0).long() + (x[:, 0, 16] > 2).long()
dataloaders = {"train": DataLoader(TensorDataset(x[:700], y[:700]), 25, shuffle=True), "val": DataLoader(TensorDataset(x[700:], y[700:]), 50)}
model = Trunk()
for name, p in model.named_parameters():
    if not name.startswith("fc"):
        p.requires_grad = False
model.fc = nn.Linear(model.fc.in_features, 3)
criterion = nn.CrossEntropyLoss()


def train_model(model, criterion, optimizer, scheduler, num_epochs):
    best_wts, best_acc = copy.deepcopy(model.state_dict()), 0.0
    for epoch in range(num_epochs):
        print(f"Epoch {epoch}/{num_epochs - 1}")
        for phase in ["train", "val"]:
            model.train() if phase == "train" else model.eval()
            running_loss, running_corrects = 0.0, 0
            for inputs, labels in dataloaders[phase]:
                optimizer.zero_grad()
                with torch.set_grad_enabled(phase == "train"):
                    outputs = model(inputs)
                    _, preds = torch.max(outputs, 1)
                    loss = criterion(outputs, labels)
                    if phase == "train":
                        loss.backward()
                        optimizer.step()
                running_loss += loss.item() * inputs.size(0)
                running_corrects += torch.sum(preds == labels.data)
            if phase == "train":
                scheduler.step()
            n = len(dataloaders[phase].dataset)
            acc = running_corrects.double() / n
            print(f"{phase} Loss: {running_loss / n:.4f} Acc: {acc:.4f}")
            if phase == "val" and acc > best_acc:
                best_acc = acc
                best_wts = copy.deepcopy(model.state_dict())
    print(f"Best val Acc: {best_acc:4f}")
    model.load_state_dict(best_wts)
    return model


opt = optim.SGD(model.fc.parameters(), lr=0.01, momentum=0.9)
model = train_model(model, criterion, opt, optim.lr_scheduler.StepLR(opt, 4, 0.5), 9)
for p in model.layer.parameters():
    p.requires_grad = True
opt = optim.SGD([{"params": model.layer.parameters(), "lr": 1e-3}, {"params": model.fc.parameters()}], lr=5e-3, momentum=0.9)
model = train_model(model, criterion, opt, optim.lr_scheduler.ExponentialLR(opt, 0.9), 10)
torch.save(model, "model_full.pt")
