"""Layers, attention, rotary embeddings, state-space parts and losses of transformers."""

from types import SimpleNamespace

import torch
import torchvision_schemas  # noqa: F401
from functions import add, ints, positive, r
from torch import Tensor, nn
from transformers import (
    BertConfig,
    GPT2Config,
    LlamaConfig,
    RwkvConfig,
    SiglipVisionConfig,
    T5Config,
)
from transformers.activations import (
    AccurateGELUActivation,
    ClippedGELUActivation,
    FastGELUActivation,
    LaplaceActivation,
    NewGELUActivation,
    QuickGELUActivation,
    ReLUSquaredActivation,
    XIELUActivation,
)
from transformers.loss import loss_for_object_detection as detection
from transformers.loss.loss_utils import ForCausalLMLoss, ForMaskedLMLoss, ForTokenClassification
from transformers.models.bert import modeling_bert as bert
from transformers.models.bloom.modeling_bloom import BloomGelu, bloom_gelu_forward
from transformers.models.clip.modeling_clip import image_text_contrastive_loss
from transformers.models.cohere import modeling_cohere as cohere
from transformers.models.convnext.modeling_convnext import ConvNextLayerNorm
from transformers.models.deepseek_v3.modeling_deepseek_v3 import apply_rotary_pos_emb_interleave
from transformers.models.esm.modeling_esm import average_product_correct, symmetrize
from transformers.models.gemma2 import modeling_gemma2 as gemma2
from transformers.models.gpt2.modeling_gpt2 import GPT2MLP, GPT2Attention
from transformers.models.gpt_neox import modeling_gpt_neox as gpt_neox
from transformers.models.gptj import modeling_gptj as gptj
from transformers.models.llama import modeling_llama as llama
from transformers.models.mamba.modeling_mamba import MambaRMSNorm, mamba_selective_scan
from transformers.models.mamba2.modeling_mamba2 import MambaRMSNormGated, segment_sum
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func
from transformers.models.nemotron.modeling_nemotron import NemotronLayerNorm1P
from transformers.models.qwen3_next.modeling_qwen3_next import (
    Qwen3NextRMSNorm,
    Qwen3NextRMSNormGated,
    l2norm,
)
from transformers.models.rwkv.modeling_rwkv import RwkvFeedForward, rwkv_linear_attention_cpu
from transformers.models.siglip.modeling_siglip import SiglipAttention
from transformers.models.swin.modeling_swin import window_partition, window_reverse
from transformers.models.t5.modeling_t5 import T5DenseGatedActDense, T5LayerNorm
from transformers.utils import logging

logging.set_verbosity_error()

LLAMA = LlamaConfig(
    hidden_size=8, intermediate_size=10, num_attention_heads=4, num_key_value_heads=2, head_dim=6
)
BERT = BertConfig(hidden_size=8, intermediate_size=10, num_attention_heads=2)
GPT2 = GPT2Config(n_embd=8, n_head=2, n_inner=10)
T5 = T5Config(d_model=8, d_ff=10, feed_forward_proj="gated-gelu")
RWKV = RwkvConfig(hidden_size=8, intermediate_size=10)
SIGLIP = SiglipVisionConfig(hidden_size=8, intermediate_size=10, num_attention_heads=2)


def hf(name: str, module: object, *example: object) -> None:
    """A module or function under the name that its own name has in its model's file."""
    add(f"transformers.{name}", module.eval() if hasattr(module, "eval") else module, *example)


def drawn(module: nn.Module) -> nn.Module:
    """The module with parameters that are drawn, which it leaves empty."""
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    return module


TOKENS = r(2, 5, 8)

hf("LlamaRMSNorm", llama.LlamaRMSNorm(8), TOKENS)
hf("T5LayerNorm", T5LayerNorm(8), TOKENS)
hf("Gemma2RMSNorm", gemma2.Gemma2RMSNorm(8), TOKENS)
hf("Qwen3NextRMSNorm", Qwen3NextRMSNorm(8), TOKENS)
hf("Qwen3NextRMSNormGated", Qwen3NextRMSNormGated(8), TOKENS, r(2, 5, 8))
hf("MambaRMSNorm", MambaRMSNorm(8), TOKENS)
hf("MambaRMSNormGated", MambaRMSNormGated(8, 4), TOKENS, r(2, 5, 8))
hf("CohereLayerNorm", cohere.CohereLayerNorm(8), TOKENS)
hf("NemotronLayerNorm1P", NemotronLayerNorm1P(8), TOKENS)
hf("ConvNextLayerNorm", ConvNextLayerNorm(4, data_format="channels_first"), r(2, 4, 3, 5))
hf("l2norm", l2norm, TOKENS)

for _kind in (
    AccurateGELUActivation,
    FastGELUActivation,
    LaplaceActivation,
    NewGELUActivation,
    QuickGELUActivation,
    ReLUSquaredActivation,
):
    hf(_kind.__name__, _kind(), r(3, 5))
hf("ClippedGELUActivation", ClippedGELUActivation(-1.0, 2.0), r(3, 5))
hf("XIELUActivation", XIELUActivation(dtype=torch.float32), r(3, 5))
hf("bloom_gelu_forward", bloom_gelu_forward, r(3, 5))
hf("BloomGelu", BloomGelu().train(), r(3, 5))

hf("LlamaMLP", llama.LlamaMLP(LLAMA), TOKENS)
hf("GPT2MLP", GPT2MLP(10, GPT2), TOKENS)
hf("T5DenseGatedActDense", T5DenseGatedActDense(T5), TOKENS)
hf("BertIntermediate", bert.BertIntermediate(BERT), TOKENS)
hf("BertSelfOutput", bert.BertSelfOutput(BERT), TOKENS, r(2, 5, 8))

HEADS = r(2, 3, 5, 8)
ANGLES = (r(2, 5, 8), r(2, 5, 8))

hf("rotate_half", llama.rotate_half, HEADS)
hf("apply_rotary_pos_emb", llama.apply_rotary_pos_emb, HEADS, r(2, 4, 5, 8), *ANGLES)
hf("rotary_gpt_neox", gpt_neox.apply_rotary_pos_emb, HEADS, HEADS, r(2, 5, 4), r(2, 5, 4))
hf("rotary_gptj", gptj.apply_rotary_pos_emb, r(2, 5, 3, 8), r(2, 5, 4), r(2, 5, 4))
hf("rotary_cohere", cohere.apply_rotary_pos_emb, HEADS, r(2, 4, 5, 8), *ANGLES)
hf("rotary_deepseek", apply_rotary_pos_emb_interleave, HEADS, r(2, 4, 5, 8), *ANGLES)
hf("LlamaRotaryEmbedding", llama.LlamaRotaryEmbedding(LLAMA), TOKENS, torch.arange(5)[None])

GROUPS = SimpleNamespace(num_key_value_groups=2, training=False)


def eager_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    return llama.eager_attention_forward(GROUPS, query, key, value, mask, 0.5)[0]


def softcapped_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return gemma2.eager_attention_forward(
        GROUPS, query, key, value, None, scaling=0.5, softcap=50.0
    )[0]


hf("repeat_kv", llama.repeat_kv, r(2, 3, 5, 4), 2)
hf("eager_attention", eager_attention, r(2, 4, 3, 6), r(2, 2, 5, 6), r(2, 2, 5, 6), r(2, 1, 3, 5))
hf("softcapped_attention", softcapped_attention, r(2, 4, 3, 6), r(2, 2, 5, 6), r(2, 2, 5, 6))
hf("LlamaAttention", llama.LlamaAttention(LLAMA, 0), TOKENS, (r(2, 5, 6), r(2, 5, 6)))
hf("BertSelfAttention", bert.BertSelfAttention(BERT), TOKENS, r(2, 1, 5, 5))
hf("GPT2Attention", GPT2Attention(GPT2, layer_idx=0), TOKENS)
hf("SiglipAttention", SiglipAttention(SIGLIP), TOKENS)
hf("window_partition", window_partition, r(2, 4, 6, 5), 2)
hf("window_reverse", window_reverse, r(12, 2, 2, 5), 2, 4, 6)

hf(
    "mamba_selective_scan",
    mamba_selective_scan,
    *(r(2, 6, 5), positive(2, 6, 5), -positive(6, 4), r(2, 4, 5), r(2, 4, 5), r(6)),
)
hf("segment_sum", segment_sum, r(2, 3, 5))
hf("rwkv_linear_attention", rwkv_linear_attention_cpu, r(4), r(4), r(2, 5, 4), r(2, 5, 4))
hf("RwkvFeedForward", drawn(RwkvFeedForward(RWKV)), TOKENS)

LABELS = ints(7, 2, 5)

hf("ForCausalLMLoss", ForCausalLMLoss, r(2, 5, 7), LABELS, 7)
hf("ForMaskedLMLoss", ForMaskedLMLoss, r(2, 5, 7), LABELS, 7)
hf("ForTokenClassification", ForTokenClassification, r(2, 5, 7), LABELS, LlamaConfig(num_labels=7))
hf("load_balancing_loss", load_balancing_loss_func, (r(6, 4), r(6, 4)), 4)
hf("image_text_contrastive_loss", image_text_contrastive_loss, r(5, 5))
hf("dice_loss", detection.dice_loss, r(3, 4, 5), positive(3, 20), 4)
hf("sigmoid_focal_loss", detection.sigmoid_focal_loss, r(3, 4, 5), positive(3, 4, 5), 4)
hf(
    "generalized_box_iou",
    detection.generalized_box_iou,
    positive(5, 4).cumsum(1),
    positive(3, 4).cumsum(1),
)
hf("symmetrize", symmetrize, r(2, 5, 5))
hf("average_product_correct", average_product_correct, positive(2, 5, 5))
