# Nothing wrong here: features from a frozen network.
import torch
from torch.utils.data import DataLoader
from torchvision import datasets, models, transforms

backbone = models.resnet18(weights="DEFAULT")
backbone.fc = torch.nn.Identity()
for p in backbone.parameters():
    p.requires_grad_(False)
backbone.eval()
loader = DataLoader(datasets.CIFAR10("data", transform=transforms.ToTensor()), batch_size=100)
features, labels = [], []
for x, y in loader:
    features.append(backbone(x).cpu())
    labels.append(y)
features, labels = torch.cat(features), torch.cat(labels)
head = torch.nn.Linear(512, 10)
opt = torch.optim.LBFGS(head.parameters())


def closure():
    opt.zero_grad()
    loss = torch.nn.functional.cross_entropy(head(features), labels)
    loss.backward()
    return loss


for _ in range(20):
    opt.step(closure)
