# Nothing wrong here: style transfer optimizes an image.
import torch
from parts import vgg, content, style_loss, content_loss

device = "cuda" if torch.cuda.is_available() else "cpu"
image = content.clone().to(device).requires_grad_(True)
optimizer = torch.optim.LBFGS([image])
run = [0]
while run[0] <= 300:
    def closure():
        optimizer.zero_grad()
        features = vgg(image)
        loss = style_loss(features) * 1e6 + content_loss(features)
        loss.backward()
        run[0] += 1
        if run[0] % 50 == 0:
            print(run[0], loss.item())
        return loss
    optimizer.step(closure)
