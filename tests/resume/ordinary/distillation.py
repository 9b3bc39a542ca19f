# Knowledge distillation: a teacher is trained first, frozen, then a student learns from its logits; two phases in one script.
# expected: exact
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(10)
X = torch.randn(1500, 20)
Y = ((X[:, 0] * X[:, 1] > 0).long() + 2 * (X[:, 2] > 0.3).long())
train, test = TensorDataset(X[:1200], Y[:1200]), TensorDataset(X[1200:], Y[1200:])


def mlp(width):
    return nn.Sequential(nn.Linear(20, width), nn.ReLU(), nn.Dropout(0.2), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4))


def evaluate(model):
    model.eval()
    hits = sum((model(x).argmax(1) == y).sum().item() for x, y in DataLoader(test, 100))
    model.train()
    return hits / len(test)


def fit(model, epochs, loss_fn, lr, name):
    opt = torch.optim.Adam(model.parameters(), lr=lr)
    loader = DataLoader(train, 32, shuffle=True)
    for epoch in range(epochs):
        total = 0
        for x, y in loader:
            opt.zero_grad()
            loss = loss_fn(model, x, y)
            loss.backward()
            opt.step()
            total += loss.item()
        print(f"{name} epoch {epoch + 1}/{epochs} loss {total / len(loader):.5f} acc {evaluate(model):.4f}", flush=True)


teacher, student = mlp(96), mlp(12)
fit(teacher, 10, lambda m, x, y: F.cross_entropy(m(x), y), 2e-3, "teacher")
for p in teacher.parameters():
    p.requires_grad = False
teacher.eval()


def distill(m, x, y, T=3.0, alpha=0.7):
    with torch.no_grad():
        soft = F.softmax(teacher(x) / T, dim=1)
    logits = m(x)
    return alpha * T * T * F.kl_div(F.log_softmax(logits / T, dim=1), soft, reduction="batchmean") + (1 - alpha) * F.cross_entropy(logits, y)


fit(student, 18, distill, 3e-3, "student")
torch.save({"teacher": teacher.state_dict(), "student": student.state_dict()}, "distilled.pt")
