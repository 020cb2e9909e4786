"""Models of `diffusers` and `torch_geometric`, tiny and with random weights; nothing is downloaded.

The libraries are imported inside the builders: they take seconds, and most tests do not need them.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from .case import LossAndResults, TrainingCase, architecture, supervised


@architecture()
def diffusers_unet_checkpointing() -> TrainingCase:
    """A conditional UNet with cross attention and recomputation, trained on the noise that a scheduler added."""
    from diffusers import DDPMScheduler, UNet2DConditionModel

    model = UNet2DConditionModel(
        sample_size=8,
        in_channels=2,
        out_channels=2,
        layers_per_block=1,
        block_out_channels=(4,),
        down_block_types=("CrossAttnDownBlock2D",),
        up_block_types=("UpBlock2D",),
        norm_num_groups=2,
        cross_attention_dim=8,
        attention_head_dim=4,
        mid_block_type=None,
    ).train()
    model.enable_gradient_checkpointing()
    scheduler = DDPMScheduler(num_train_timesteps=10)

    def batch(i: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(i)
        return torch.randn(2, 2, 8, 8, generator=generator), torch.randn(2, 3, 8, generator=generator)

    def loss_of(net: nn.Module, pictures: torch.Tensor, words: torch.Tensor) -> LossAndResults:
        noise = torch.randn_like(pictures)
        when = torch.randint(0, 10, (2,))
        guess = net(scheduler.add_noise(pictures, noise, when), when, encoder_hidden_states=words).sample
        return F.mse_loss(guess, noise), {"guess": guess}

    return supervised(model, batch, loss_of, clip=1.0)


@architecture()
def geometric_graph_networks() -> TrainingCase:
    """GCN, GAT and a message passing of the user's own: generated `propagate` functions, an edge index that is a
    tensor subclass, several graphs in one batch, pooling by scatter."""
    from torch_geometric.data import Batch, Data
    from torch_geometric.nn import GATConv, GCNConv, MessagePassing, global_mean_pool
    from torch_geometric.utils import softmax

    class Weighed(MessagePassing):
        def __init__(self) -> None:
            super().__init__(aggr="max")
            self.linear = nn.Linear(16, 8)

        def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
            return self.propagate(edges, x=x)

        def message(self, x_i: torch.Tensor, x_j: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
            weights = softmax(x_j.sum(-1), index)
            return self.linear(torch.cat([x_i, x_j - x_i], dim=-1)) * weights.unsqueeze(-1)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = GCNConv(6, 8), GATConv(8, 4, heads=2, dropout=0.1)
            self.third, self.head = Weighed(), nn.Linear(8, 3)

        def forward(self, x: torch.Tensor, edges: torch.Tensor, graph: torch.Tensor) -> torch.Tensor:
            h = self.first(x, edges).relu()
            h = F.elu(self.second(h, edges))
            return self.head(global_mean_pool(self.third(h, edges), graph))

    def batch(i: int) -> tuple[torch.Tensor, ...]:
        generator = torch.Generator().manual_seed(i)
        graphs = [
            Data(
                x=torch.randn(nodes, 6, generator=generator),
                edge_index=torch.randint(nodes, (2, 3 * nodes), generator=generator),
            )
            for nodes in (4, 5)
        ]
        together = Batch.from_data_list(graphs)
        return together.x, together.edge_index, together.batch, torch.randint(3, (2,), generator=generator)

    def loss_of(
        net: nn.Module, x: torch.Tensor, edges: torch.Tensor, graph: torch.Tensor, labels: torch.Tensor
    ) -> LossAndResults:
        from torch_geometric import EdgeIndex

        out = net(x, EdgeIndex(edges, sparse_size=(9, 9)).sort_by("row").values, graph)
        return F.cross_entropy(out, labels), {"out": out}

    return supervised(Model(), batch, loss_of)
