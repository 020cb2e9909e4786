"""Convolutional nets and the vision transformer."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from .case import LossAndResults, TrainingCase, architecture, supervised


def images(
    i: int, count: int = 4, channels: int = 3, side: int = 8, classes: int = 5
) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1000 + i)
    pictures = torch.randn(count, channels, side, side, generator=generator)
    labels = torch.randint(classes, (count,), generator=generator)
    return pictures, labels


def classify(model: nn.Module, pictures: torch.Tensor, labels: torch.Tensor) -> LossAndResults:
    logits = model(pictures)
    return F.cross_entropy(logits, labels), {"logits": logits}


@architecture()
def cnn_batchnorm() -> TrainingCase:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 12, 3, padding=1, groups=4),
        nn.BatchNorm2d(12),
        nn.LeakyReLU(0.1),
        nn.Dropout2d(0.2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(12, 5),
    )
    return supervised(model, images, classify, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True))


class ResidualBlock(nn.Module):
    def __init__(self, width_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width_in, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = (
            nn.Sequential(nn.Conv2d(width_in, width, 1, stride, bias=False), nn.BatchNorm2d(width))
            if stride != 1 or width_in != width
            else None
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.layers = nn.Sequential(ResidualBlock(8, 8, 1), ResidualBlock(8, 16, 2), ResidualBlock(16, 16, 1))
        self.head = nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layers(self.stem(x))
        return self.head(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


@architecture()
def resnet() -> TrainingCase:
    return supervised(ResNet(), images, classify)


@architecture()
def resnet_channels_last() -> TrainingCase:
    model = ResNet().to(memory_format=torch.channels_last)

    def loss_of(net: ResNet, pictures: torch.Tensor, labels: torch.Tensor) -> LossAndResults:
        features = net.layers(net.stem(pictures.to(memory_format=torch.channels_last)))
        logits = net.head(features.mean((2, 3)))
        return F.cross_entropy(logits, labels), {"features": features, "logits": logits}

    return supervised(model, images, loss_of, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))


class UNet(nn.Module):
    """Two levels down, two up, skip connections by concatenation, GroupNorm and bilinear up-sampling."""

    def __init__(self) -> None:
        super().__init__()
        self.down1 = self.block(1, 8)
        self.down2 = self.block(8, 16)
        self.middle = self.block(16, 16)
        self.up2 = nn.ConvTranspose2d(16, 16, 2, stride=2)
        self.join2 = self.block(32, 8)
        self.join1 = self.block(16, 8)
        self.head = nn.Conv2d(8, 1, 1)

    @staticmethod
    def block(width_in: int, width: int) -> nn.Sequential:
        return nn.Sequential(nn.Conv2d(width_in, width, 3, padding=1), nn.GroupNorm(4, width), nn.SiLU(inplace=True))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.down1(x)
        second = self.down2(F.max_pool2d(first, 2))
        deep = self.middle(F.avg_pool2d(second, 2))
        joined = self.join2(torch.cat([self.up2(deep), second], 1))
        up = F.interpolate(joined, scale_factor=2, mode="bilinear", align_corners=False)
        return self.head(self.join1(torch.cat([up, first], 1)))


@architecture()
def unet() -> TrainingCase:
    def batch(i: int) -> tuple[torch.Tensor, torch.Tensor]:
        pictures, _ = images(i, count=2, channels=1)
        return pictures, (pictures > 0.5).float()

    def loss_of(net: nn.Module, pictures: torch.Tensor, mask: torch.Tensor) -> LossAndResults:
        logits = net(pictures)
        overlap = 2 * (logits.sigmoid() * mask).sum() / (logits.sigmoid().sum() + mask.sum() + 1e-6)
        return F.binary_cross_entropy_with_logits(logits, mask) + 1 - overlap, {
            "logits": logits,
            "overlap": overlap,
        }

    return supervised(UNet(), batch, loss_of)


class VisionTransformer(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, stride=4)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, 5, width) * 0.02)
        layer = nn.TransformerEncoderLayer(
            width, 4, 32, dropout=0.1, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.class_token.expand(x.shape[0], -1, -1), tokens], dim=1) + self.positions
        return self.head(self.encoder(tokens)[:, 0])


@architecture()
def vit() -> TrainingCase:
    return supervised(VisionTransformer(), images, classify, clip=0.5)
