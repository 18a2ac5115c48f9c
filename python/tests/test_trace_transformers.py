"""Tracing of networks of the package `transformers`, with random weights."""

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from deeppool import plan  # noqa: E402
from deeppool.tracing import trace  # noqa: E402

SMALL = {
    "vocab_size": 100,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}
GPT2 = {"vocab_size": 100, "n_embd": 32, "n_layer": 2, "n_head": 4}
T5 = {"vocab_size": 100, "d_model": 32, "num_layers": 2, "num_heads": 4, "d_kv": 8, "d_ff": 64}

#: Class of the network, options of its configuration, and maximum number of its opaque layers.
NETWORKS = [
    ("LlamaForCausalLM", SMALL | {"num_key_value_heads": 2}, 12),
    ("OPTForCausalLM", SMALL | {"ffn_dim": 64, "word_embed_proj_dim": 32, "pad_token_id": 0}, 2),
    ("GPT2LMHeadModel", GPT2 | {"attn_pdrop": 0.0}, 0),
    ("RobertaForSequenceClassification", SMALL | {"max_position_embeddings": 20, "pad_token_id": 1}, 6),
    ("T5EncoderModel", T5, 8),
    ("MambaForCausalLM", SMALL | {"state_size": 4}, 5),
]


@pytest.mark.parametrize(("name", "options", "opaque"), NETWORKS)
def test_network_is_traced_and_planned_as_it_comes(name, options, opaque, capfd):
    torch.manual_seed(0)
    kind = getattr(transformers, name)
    module = kind(kind.config_class(**options)).eval()
    tokens = torch.randint(2, 100, (2, 16))
    wanted = module(tokens)
    loss = {}
    if "last_hidden_state" in wanted:
        wanted = wanted.last_hidden_state
        loss = {"loss": torch.nn.MSELoss(), "targets": torch.zeros_like(wanted)}
    else:
        wanted = wanted.logits
    capfd.readouterr()
    traced = trace(module, tokens, **loss)
    assert capfd.readouterr() == ("", "")
    assert len(traced.opaque) <= opaque, traced
    assert torch.allclose(traced.run(tokens), wanted, atol=1e-4)
    layers = [layer for layer in traced.network.layers if layer.parameters_of is None]
    used = sum(parameter.numel() for parameter in module.parameters())
    assert sum(layer.parameter_count for layer in layers) == used
    assert plan(traced.network, gpus=64, batch=256, device="a100").iteration_us > 0
