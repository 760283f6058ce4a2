"""The same convolution on channels-last tensors."""

from __future__ import annotations

from tracemine.verify.fixes.calls import Ways

FIX = Ways(ways=("channels_last", "channels_last, cudnn.benchmark", "cudnn.benchmark"))
