"""A ResNet-50, and a transformer of 125 M parameters."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Bottleneck(nn.Module):
    """Three convolutions beside a shortcut."""

    def __init__(self, channels_in: int, width: int, stride: int) -> None:
        super().__init__()
        channels_out = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(channels_in, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, channels_out, 1, bias=False), nn.BatchNorm2d(channels_out),
        )  # fmt: skip
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or channels_in != channels_out:
            convolution = nn.Conv2d(channels_in, channels_out, 1, stride, bias=False)
            self.shortcut = nn.Sequential(convolution, nn.BatchNorm2d(channels_out))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.shortcut(x))


class ResNet(nn.Sequential):
    """ResNet-50 with a width of 64 and these depths (He et al., CVPR 2016)."""

    def __init__(self, width: int = 64, depths: tuple[int, ...] = (3, 4, 6, 3)) -> None:
        blocks: list[nn.Module] = []
        channels = width
        for stage, depth in enumerate(depths):
            for number in range(depth):
                blocks.append(Bottleneck(channels, width << stage, 2 if stage and number == 0 else 1))
                channels = 4 * (width << stage)
        super().__init__(
            nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000),
        )  # fmt: skip
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.contiguous(memory_format=torch.channels_last))  # type: ignore[no-any-return]


class Block(nn.Module):
    """Causal attention and two linear layers."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self._heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        rows, length, width = x.shape
        heads = self.qkv(self.norms[0](x)).view(rows, length, 3, self._heads, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(rows, length, width))
        return x + self.mlp(self.norms[1](x))  # type: ignore[no-any-return]


class Transformer(nn.Module):
    """A decoder of the size of GPT-2's smallest one, with tied embeddings."""

    def __init__(self, length: int, width: int = 768, layers: int = 12, heads: int = 12, words: int = 50304) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        for table in (self.words, self.positions):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens[:, :-1]
        x = self.words(tokens) + self.positions.weight[: tokens.shape[1]]
        return F.linear(self.norm(self.blocks(x)), self.words.weight)
