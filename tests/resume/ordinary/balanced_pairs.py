# A siamese network with a contrastive loss: a batch sampler of its own that takes P classes with K samples each, pairs mined in the batch,
# margins, k-nearest-neighbour accuracy after each epoch, early stopping.
# expected: either  (the loss keeps a count that the script reads: a ghost does not have it)
import json
from collections import defaultdict

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.sampler import BatchSampler

torch.manual_seed(42)
np.random.seed(42)


class Shapes(Dataset):
    """Points around the corners of a polytope, bent by a fixed random map."""

    def __init__(self, n_classes=10, per_class=60, dim=12, train=True):
        rng = np.random.RandomState(0 if train else 1)
        centers = np.random.RandomState(5).normal(size=(n_classes, dim)) * 1.5
        bend = np.random.RandomState(6).normal(size=(dim, dim))
        self.labels = np.repeat(np.arange(n_classes), per_class)
        self.data = np.tanh((centers[self.labels] + rng.normal(size=(len(self.labels), dim))) @ bend).astype(np.float32)
        self.train = train

    def __getitem__(self, index):
        x = torch.from_numpy(self.data[index])
        if self.train:
            x = x + 0.1 * torch.randn_like(x)
        return x, int(self.labels[index])

    def __len__(self):
        return len(self.labels)


class BalancedBatchSampler(BatchSampler):
    """BatchSampler - samples n_classes and within these classes samples n_samples. Returns batches of size n_classes * n_samples"""

    def __init__(self, labels, n_classes, n_samples):
        self.labels_set = list(set(labels.tolist()))
        self.label_to_indices = {label: np.where(labels == label)[0] for label in self.labels_set}
        for label in self.labels_set:
            np.random.shuffle(self.label_to_indices[label])
        self.used_label_indices_count = dict.fromkeys(self.labels_set, 0)
        self.count = 0
        self.n_classes, self.n_samples = n_classes, n_samples
        self.n_dataset = len(labels)
        self.batch_size = n_classes * n_samples

    def __iter__(self):
        self.count = 0
        while self.count + self.batch_size < self.n_dataset:
            classes = np.random.choice(self.labels_set, self.n_classes, replace=False)
            indices = []
            for class_ in classes:
                used = self.used_label_indices_count[class_]
                indices.extend(self.label_to_indices[class_][used : used + self.n_samples])
                self.used_label_indices_count[class_] += self.n_samples
                if self.used_label_indices_count[class_] + self.n_samples > len(self.label_to_indices[class_]):
                    np.random.shuffle(self.label_to_indices[class_])
                    self.used_label_indices_count[class_] = 0
            yield indices
            self.count += self.batch_size

    def __len__(self):
        return self.n_dataset // self.batch_size


class EmbeddingNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Sequential(nn.Linear(12, 64), nn.PReLU(), nn.BatchNorm1d(64), nn.Linear(64, 32), nn.PReLU(), nn.Linear(32, 2))

    def forward(self, x):
        return self.fc(x)

    def get_embedding(self, x):
        return self.forward(x)


class OnlineContrastiveLoss(nn.Module):
    def __init__(self, margin):
        super().__init__()
        self.margin = margin
        self.mined = defaultdict(int)

    def forward(self, embeddings, target):
        i, j = torch.triu_indices(len(target), len(target), offset=1)
        distance = (embeddings[i] - embeddings[j]).pow(2).sum(1)
        same = target[i] == target[j]
        positive = distance[same]
        negative = distance[~same]
        hardest = negative.topk(len(positive), largest=False).values
        self.mined["batches"] += 1
        return torch.cat([positive, F.relu(self.margin - (hardest + 1e-9).sqrt()).pow(2)]).mean()


def extract_embeddings(loader, model):
    with torch.no_grad():
        model.eval()
        embeddings, labels = np.zeros((len(loader.dataset), 2)), np.zeros(len(loader.dataset))
        k = 0
        for images, target in loader:
            embeddings[k : k + len(images)] = model.get_embedding(images).data.cpu().numpy()
            labels[k : k + len(images)] = target.numpy()
            k += len(images)
    return embeddings, labels


def knn(train, test, k=5):
    distance = ((test[0][:, None] - train[0][None]) ** 2).sum(-1)
    votes = train[1][np.argsort(distance, axis=1)[:, :k]].astype(int)
    return float(np.mean([np.bincount(v).argmax() == t for v, t in zip(votes, test[1], strict=True)]))


train_dataset, test_dataset = Shapes(train=True), Shapes(train=False)
train_loader = DataLoader(train_dataset, batch_sampler=BalancedBatchSampler(train_dataset.labels, n_classes=5, n_samples=4))
plain_loader = DataLoader(train_dataset, batch_size=100, shuffle=False)
test_loader = DataLoader(test_dataset, batch_size=100, shuffle=False)
model = EmbeddingNet()
loss_fn = OnlineContrastiveLoss(margin=1.0)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-4)
scheduler = StepLR(optimizer, 8, gamma=0.5, last_epoch=-1)
history, best, patience = [], 0.0, 0
for epoch in range(30):
    model.train()
    losses = []
    total_loss = 0
    for batch_idx, (data, target) in enumerate(train_loader):
        optimizer.zero_grad()
        outputs = model(data)
        loss = loss_fn(outputs, target)
        losses.append(loss.item())
        total_loss += loss.item()
        loss.backward()
        optimizer.step()
        if batch_idx % 10 == 0:
            print(f"Train: [{batch_idx * len(data)}/{len(train_loader.dataset)} ({100.0 * batch_idx / len(train_loader):.0f}%)]\tLoss: {np.mean(losses):.6f}")
            losses = []
    scheduler.step()
    accuracy = knn(extract_embeddings(plain_loader, model), extract_embeddings(test_loader, model))
    history.append({"epoch": epoch, "loss": total_loss / (batch_idx + 1), "knn": accuracy, "mined": loss_fn.mined["batches"]})
    print(f"Epoch: {epoch + 1}/30. Train set: Average loss: {total_loss / (batch_idx + 1):.4f} knn {accuracy:.4f}")
    with open("history.json", "w") as f:
        json.dump(history, f)
    if accuracy > best:
        best, patience = accuracy, 0
        torch.save(model.state_dict(), "embedding.pt")
    else:
        patience += 1
        if patience >= 12:
            print("early stop")
            break
print("best", best)
