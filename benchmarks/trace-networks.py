#!/usr/bin/env python3
"""Traces and plans networks of `torchvision`, `timm` and `transformers` with random weights for 64 GPUs.

    python benchmarks/trace-networks.py [--packages NAME ...] [--networks NAME ...] [--gpus 64]
                                        [--rounds N] [--flops] [--output FILE]

Those of `transformers` have two blocks, the others their own depth. It writes one line of JSON for each
network: layers, opaque layers by reason, parameters, seconds of the first tracing and of planning, median CPU
seconds of later ones and of `torch.export`, measured by turns, and the error if there is one. It needs the
packages `deeppool` and `torch`, and those of the networks.

With `--flops` the networks are not planned. The rows have the floating-point operations of one sample's
forward pass in convolutions, linear layers and the products of attentions: those that PyTorch's
`FlopCounterMode` counts in the module, and those of the traced network's layers without biases and the
softmax of attentions. In the modules of opaque layers, whose operations in the network are a sum with others,
`FlopCounterMode` counts them.
"""

import argparse
import importlib
import inspect
import json
import math
import statistics
import time
import warnings
from collections import Counter
from functools import partial
from pathlib import Path

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import deeppool
from deeppool.tracing import trace

VOCABULARY, POSITIONS = 1000, 64
#: Options of a language model of two blocks, under the names that most configurations have.
SMALL = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "pad_token_id": 0,
}
GROUPED = SMALL | {"num_key_value_heads": 2}
GPT2 = {"vocab_size": VOCABULARY, "n_embd": 64, "n_layer": 2, "n_head": 4}
BLOOM = {"vocab_size": VOCABULARY, "hidden_size": 64, "n_layer": 2, "n_head": 4}
ROBERTA = SMALL | {"max_position_embeddings": 80, "pad_token_id": 1}
T5 = {"vocab_size": VOCABULARY, "d_model": 64, "num_layers": 2, "num_heads": 4, "d_kv": 16, "d_ff": 128}
VISION = SMALL | {"image_size": 64, "patch_size": 16}


def tokens():
    """Two sequences without padding."""
    return torch.randint(5, VOCABULARY, (2, POSITIONS))


def pairs_of_sentences():
    """Tokens of an encoder and of a decoder."""
    return {"input_ids": tokens(), "decoder_input_ids": tokens()[:, :48]}


def sentences():
    """Two sequences of different lengths, of one kind each."""
    is_word = torch.arange(POSITIONS) < torch.tensor([[POSITIONS], [40]])
    return {"input_ids": tokens(), "attention_mask": is_word.long()}


def images():
    return torch.randn(2, 3, 64, 64)


def sound():
    return torch.randn(2, 4000)


#: Networks of torchvision, one of each family, and the height of their images.
TORCHVISION = {
    "alexnet": 224,
    "vgg16": 224,
    "resnet50": 224,
    "resnext50_32x4d": 224,
    "wide_resnet50_2": 224,
    "densenet121": 224,
    "squeezenet1_1": 224,
    "mnasnet1_0": 224,
    "shufflenet_v2_x1_0": 224,
    "mobilenet_v2": 224,
    "mobilenet_v3_small": 224,
    "regnet_y_400mf": 224,
    "efficientnet_b0": 224,
    "convnext_tiny": 224,
    "vit_b_16": 224,
    "swin_t": 224,
    "maxvit_t": 224,
    "googlenet": 224,
    "inception_v3": 299,
}
#: Networks of timm.
TIMM = [
    "resnet50",
    "resnet18",
    "mobilenetv3_large_100",
    "mobilenetv3_small_100",
    "vit_base_patch16_224",
    "efficientnet_b0",
    "tf_efficientnetv2_s",
    "convnext_tiny",
    "deit_small_patch16_224",
    "swin_tiny_patch4_window7_224",
]

#: Networks of transformers: type of the configuration, class of the network, options of the
#: configuration, and input, or several by name.
TRANSFORMERS = {
    "llama": ("llama", "LlamaForCausalLM", GROUPED, tokens),
    "mistral": ("mistral", "MistralForCausalLM", GROUPED, tokens),
    "qwen2": ("qwen2", "Qwen2ForCausalLM", GROUPED, tokens),
    "gemma": ("gemma", "GemmaForCausalLM", GROUPED | {"head_dim": 16}, tokens),
    "phi": ("phi", "PhiForCausalLM", SMALL, tokens),
    "llama-padded": ("llama", "LlamaForCausalLM", GROUPED, sentences),
    "mixtral": ("mixtral", "MixtralForCausalLM", GROUPED | {"num_local_experts": 4}, tokens),
    "gpt2": ("gpt2", "GPT2LMHeadModel", GPT2, tokens),
    "gpt-neo": (
        "gpt_neo",
        "GPTNeoForCausalLM",
        {
            "vocab_size": VOCABULARY,
            "hidden_size": 64,
            "num_layers": 2,
            "num_heads": 4,
            "attention_types": [[["global", "local"], 1]],
        },
        tokens,
    ),
    "gpt-neox": ("gpt_neox", "GPTNeoXForCausalLM", SMALL, tokens),
    "opt": ("opt", "OPTForCausalLM", SMALL | {"ffn_dim": 128, "word_embed_proj_dim": 64}, tokens),
    "bloom": ("bloom", "BloomForCausalLM", BLOOM, tokens),
    "falcon": ("falcon", "FalconForCausalLM", SMALL, tokens),
    "mamba": ("mamba", "MambaForCausalLM", SMALL | {"state_size": 16}, tokens),
    "bert": ("bert", "BertForSequenceClassification", SMALL, tokens),
    "bert-padded": ("bert", "BertForSequenceClassification", SMALL, sentences),
    "bert-masked": ("bert", "BertForMaskedLM", SMALL, tokens),
    "roberta": ("roberta", "RobertaForSequenceClassification", ROBERTA, tokens),
    "electra": ("electra", "ElectraForSequenceClassification", SMALL | {"embedding_size": 32}, tokens),
    "albert": ("albert", "AlbertForSequenceClassification", SMALL | {"embedding_size": 32}, tokens),
    "distilbert": (
        "distilbert",
        "DistilBertForSequenceClassification",
        {"vocab_size": VOCABULARY, "dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 128},
        tokens,
    ),
    "deberta-v2": ("deberta-v2", "DebertaV2ForSequenceClassification", SMALL, tokens),
    "t5": ("t5", "T5ForConditionalGeneration", T5, pairs_of_sentences),
    "bart": (
        "bart",
        "BartForConditionalGeneration",
        {
            "vocab_size": VOCABULARY,
            "d_model": 64,
            **{f"{part}_layers": 2 for part in ("encoder", "decoder")},
            **{f"{part}_attention_heads": 4 for part in ("encoder", "decoder")},
            **{f"{part}_ffn_dim": 128 for part in ("encoder", "decoder")},
        },
        pairs_of_sentences,
    ),
    "t5-encoder": ("t5", "T5EncoderModel", T5, tokens),
    "vit": ("vit", "ViTForImageClassification", VISION, images),
    "deit": ("deit", "DeiTForImageClassification", VISION, images),
    "swin": (
        "swin",
        "SwinForImageClassification",
        {
            "image_size": 64,
            "patch_size": 4,
            "embed_dim": 16,
            "depths": [2, 2],
            "num_heads": [2, 4],
            "window_size": 4,
        },
        images,
    ),
    "convnext": (
        "convnext",
        "ConvNextForImageClassification",
        {"depths": [2, 2], "hidden_sizes": [16, 32], "num_stages": 2},
        images,
    ),
    "resnet": (
        "resnet",
        "ResNetForImageClassification",
        {"depths": [2, 2], "hidden_sizes": [32, 64], "embedding_size": 16},
        images,
    ),
    "clip-vision": ("clip_vision_model", "CLIPVisionModel", VISION, images),
    "wav2vec2": (
        "wav2vec2",
        "Wav2Vec2ForCTC",
        SMALL | {"conv_dim": [32] * 7, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4},
        sound,
    ),
    "wav2vec2-no-layerdrop": (
        "wav2vec2",
        "Wav2Vec2ForCTC",
        SMALL
        | {
            "conv_dim": [32] * 7,
            "num_conv_pos_embeddings": 16,
            "num_conv_pos_embedding_groups": 4,
            "layerdrop": 0.0,
            "mask_time_prob": 0.0,
        },
        sound,
    ),
}


def of_torchvision(name):
    # Two networks have classifiers beside the last layers.
    options = {"aux_logits": False} if name in ("googlenet", "inception_v3") else {}
    height = TORCHVISION[name]
    models = importlib.import_module("torchvision.models")
    return models.get_model(name, weights=None, **options), torch.randn(2, 3, height, height)


def of_timm(name):
    return importlib.import_module("timm").create_model(name), torch.randn(2, 3, 224, 224)


def of_transformers(name):
    transformers = importlib.import_module("transformers")
    transformers.logging.set_verbosity_error()
    kind, class_name, options, example = TRANSFORMERS[name]
    config = transformers.AutoConfig.for_model(kind, **options)
    return getattr(transformers, class_name)(config), example()


#: Names of the networks of a package, and a function that returns a network and its input.
PACKAGES = {
    "torchvision": (TORCHVISION, of_torchvision),
    "timm": (TIMM, of_timm),
    "transformers": (TRANSFORMERS, of_transformers),
}


def module_and_row(package, name):
    """Returns a network, its inputs by the names of parameters, and the beginning of its row."""
    torch.manual_seed(0)
    module, inputs = PACKAGES[package][1](name)
    module.train()
    if isinstance(inputs, torch.Tensor):
        inputs = {next(iter(inspect.signature(module.forward).parameters)): inputs}
    row = {
        "package": package,
        "network": name,
        "class": type(module).__name__,
        "parameters": sum(parameter.numel() for parameter in module.parameters()),
    }
    return module, inputs, row


def loss_options(package, module, inputs):
    """Returns the loss of a network without a head, for `trace`."""
    with torch.no_grad():
        output = module(**inputs)
    if package == "transformers" and "last_hidden_state" in output:
        targets = torch.zeros_like(output.last_hidden_state)
        return {"loss": torch.nn.MSELoss(), "targets": targets}
    return {}


def measure(package, name, gpus, rounds):
    """Returns the row of a network."""
    module, inputs, row = module_and_row(package, name)
    options = loss_options(package, module, inputs)
    try:
        start = time.perf_counter()
        traced = trace(module, **inputs, **options)
        row["tracing_s"] = round(time.perf_counter() - start, 2)
        exports, tracings = [], []
        for _ in range(rounds):
            exports.append(export_cpu_seconds(module, inputs))
            start_cpu = time.process_time()
            trace(module, **inputs, **options)
            tracings.append(time.process_time() - start_cpu)
        row["tracing_cpu_s"] = round(statistics.median(tracings), 2)
        row["export_cpu_s"] = round(statistics.median(exports), 2)
        row["layers"] = len(traced.layers)
        row["opaque"] = len(traced.opaque)
        row["reasons"] = dict(Counter(traced.opaque.values()))
        start = time.perf_counter()
        planned = deeppool.plan(traced.network, gpus=gpus, batch=16 * gpus, device="a100")
        row["planning_s"] = round(time.perf_counter() - start, 2)
        row["iteration_us"] = round(planned.iteration_us, 1)
    except deeppool.DeepPoolError as error:
        row["error"] = f"{type(error).__name__}: {error}"
    return row


def grouped_flops(left, right, *_, out_shape, **__):
    """Operations of the products of experts, each with some rows of `left`."""
    return 2 * math.prod(left) * right[-1]


def counted_flops(function, *inputs, **named):
    """Returns the operations that PyTorch counts in a call, and those of grouped products, which it lacks.
    Attentions are separate products, since it does not count the fused ones of processors either."""
    formulas = {torch.ops.aten._grouped_mm: grouped_flops}
    if hasattr(torch.ops.transformers, "grouped_mm_fallback"):
        # The export of a module has it instead.
        formulas[torch.ops.transformers.grouped_mm_fallback] = grouped_flops
    counter = FlopCounterMode(display=False, custom_mapping=formulas)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), counter:
        function(*inputs, **named)
    return counter.get_total_flops()


def product_flops(layer, operation):
    """Returns the operations of one sample in the products of a layer with a kind."""
    if layer.kind in ("conv2d", "conv_transpose2d", "linear"):
        has_bias = len(layer.parameters) > 1
        return layer.forward_flops - has_bias * math.prod(layer.shape)
    if layer.kind == "multi_head_attention":
        positions, options = layer.shape[0], operation[layer.kind]
        keys = layer.input_shapes[-1][0]
        products = options["heads"] * positions * min(keys, options.get("window", keys))
        # Those of the softmax, and the addition of biases.
        others = 5 + ("relative" in options or "alibi" in options)
        return layer.forward_flops - others * products
    if layer.kind == "recurrence":
        has_bias = len(layer.parameters) > 1
        gates = {"lstm": 58, "gru": 38}[operation[layer.kind]["cell"]]
        biases = has_bias * math.prod(layer.input_shapes[0])
        return layer.forward_flops - gates * math.prod(layer.shape) - biases
    if layer.kind == "mixture_of_experts":
        options, (positions, features) = operation[layer.kind], layer.shape
        matrices = 3 if options["gated"] else 2
        return positions * options["chosen"] * 2 * matrices * options["width"] * features
    return 0


def compare_flops(package, name):
    """Returns the row of a network with its operations."""
    module, inputs, row = module_and_row(package, name)
    options = loss_options(package, module, inputs)
    samples = len(next(iter(inputs.values())))
    row["module_flops"] = counted_flops(module, **inputs) // samples
    try:
        traced = trace(module, **inputs, **options)
    except deeppool.DeepPoolError as error:
        return row | {"error": f"{type(error).__name__}: {error}"}
    of_kinds = Counter()
    operations = {layer["name"]: layer["op"] for layer in traced.graph["layers"]}
    for layer in traced.network.layers:
        of_kinds[layer.kind] += product_flops(layer, operations.get(layer.name))
    declared = 0
    with torch.no_grad():
        values = traced.values(*traced.example_inputs)
    of_loss = {layer.name for layer in traced.loss_layers}
    for layer in traced.network.layers:
        if layer.kind == "opaque" and layer.name not in of_loss:
            island = traced.islands[layer.name]
            layer_inputs = [values[name] for name in layer.inputs]
            of_kinds["opaque"] += counted_flops(island, *layer_inputs) // samples
            declared += layer.forward_flops
    row["network_flops"] = sum(of_kinds.values())
    row["ratio"] = round(row["network_flops"] / row["module_flops"], 4)
    row["by_kind"] = {kind: flops for kind, flops in of_kinds.items() if flops}
    if declared:
        # With element-wise operations, as in the graph.
        row["opaque_flops"] = declared
    return row


def export_cpu_seconds(module, inputs):
    """Returns the CPU seconds of one `torch.export` of the module."""

    class Wrapper(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.module = module

        def forward(self, **inputs):
            config = getattr(module, "config", None)
            options = {"use_cache": False} if hasattr(config, "use_cache") else {}
            output = self.module(**inputs, **options)
            return output if isinstance(output, torch.Tensor) else output[0]

    start = time.process_time()
    torch.export.export(Wrapper(), (), inputs, strict=False)
    return time.process_time() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--packages", nargs="+", choices=PACKAGES, default=list(PACKAGES))
    parser.add_argument("--networks", nargs="+", help="names of networks of the packages; all if not given")
    parser.add_argument("--gpus", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=1, help="number of measurements of CPU times")
    parser.add_argument("--flops", action="store_true", help="compare floating-point operations only")
    parser.add_argument("--output", type=Path, help="file for the rows")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if not arguments.flops:
        # The first export and the first plan load more than later ones.
        traced = trace(torch.nn.Linear(4, 3), torch.randn(2, 4))
        deeppool.plan(traced.network, gpus=1, batch=1, device="a100")
    rows = []
    chosen = [(package, name) for package in arguments.packages for name in PACKAGES[package][0]]
    for name in set(arguments.networks or ()) - {name for _, name in chosen}:
        parser.error(f"no network {name} in {', '.join(arguments.packages)}")
    for package, name in chosen:
        if arguments.networks and name not in arguments.networks:
            continue
        planned = partial(measure, gpus=arguments.gpus, rounds=arguments.rounds)
        compared = compare_flops if arguments.flops else planned
        row = json.dumps(compared(package, name))
        print(row, flush=True)
        rows.append(row)
    if arguments.output:
        arguments.output.write_text("\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
