# Nothing wrong here: dqn.
import random
from collections import deque
import torch
import torch.nn as nn
import gymnasium as gym

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
env = gym.make("CartPole-v1")
policy, target = nn.Linear(4, 2).to(device), nn.Linear(4, 2).to(device)
target.load_state_dict(policy.state_dict())
optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-4)
memory = deque(maxlen=10000)


def optimize():
    if len(memory) < 128:
        return
    s, a, r, n = map(torch.stack, zip(*random.sample(memory, 128)))
    q = policy(s).gather(1, a)
    with torch.no_grad():
        goal = r + 0.99 * target(n).max(1).values
    loss = nn.functional.smooth_l1_loss(q, goal.unsqueeze(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


for episode in range(300):
    state, _ = env.reset()
    state = torch.tensor(state, device=device)
    done = False
    while not done:
        with torch.no_grad():
            action = policy(state).argmax()
        observation, reward, done, _, _ = env.step(action.item())
        following = torch.tensor(observation, device=device)
        memory.append((state, action.view(1), torch.tensor(reward), following))
        state = following
        optimize()
    print(episode)
