# Nothing wrong here: policy gradient keeps graph for one episode.
import torch
from torch.distributions import Categorical
from parts import env, policy

optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
for episode in range(500):
    state, done = env.reset(), False
    log_probs, rewards = [], []
    while not done:
        dist = Categorical(policy(state))
        action = dist.sample()
        log_probs.append(dist.log_prob(action))
        state, reward, done, _ = env.step(action.item())
        rewards.append(reward)
    loss = -torch.stack(log_probs).sum() * sum(rewards)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if episode % 10 == 0:
        print(episode, sum(rewards))
