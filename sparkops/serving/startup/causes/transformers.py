"""Known causes of failed starts: Transformers, tokenizers and chat templates."""

from __future__ import annotations

from sparkops.engines.causes import Cause

NEWER = (
    "Take a newer image (image.vllm, or image.use with a newer tag), or a newer transformers in image.packages "
    "(image.override), and run `sparkops build`."
)
FETCH = "Compare the files with `sparkops models verify` and fetch them again with `sparkops models pull`"
HUB = "transformers/utils/hub.py"
TOKENIZERS = "tokenizers (src/tokenizer/serialization.rs)"
OWN_CODE = r"/transformers_modules/|transformers_modules\."

CAUSES: tuple[Cause, ...] = (
    Cause(
        r"not a valid JSON file|^UnicodeDecodeError: |^json\.decoder\.JSONDecodeError: |Invalid repository ID or local "
        r"directory specified",
        "the model is a GGUF file, which this engine does not load itself: it was read as a config.json",
        "Serve the GGUF file with llama.cpp (engine: llama-cpp, model.file), or set model.id and model.path to the "
        "safetensors repository of the model.",
        source="transformers/configuration_utils.py",
        beside=r"\.gguf' is not a valid JSON|specified: '[^']{1,256}\.gguf'|_read_from_gguf|\.gguf\b.{0,64}valid JSON",
    ),
    Cause(
        r"GGUF model with architecture (\S{1,64}) is not supported|Can't get gguf config for (\S{1,64}?)\.?$|Unknown "
        r"gguf model_type: (\S{1,64})",
        "this release cannot load GGUF files of the architecture {0}{1}{2}",
        "Serve the GGUF file with llama.cpp (engine: llama-cpp), or take the safetensors repository of the model "
        "(model.id).",
        source="transformers/modeling_gguf_pytorch_utils.py",
    ),
    Cause(
        r"^UnicodeDecodeError: ",
        "a binary file was read as config.json: the model is a GGUF file or another file of weights, or the file is "
        "damaged",
        "Serve a GGUF file with llama.cpp (engine: llama-cpp, model.file), or set model.id and model.path to the "
        "safetensors repository of the model.",
        source="transformers/configuration_utils.py",
        beside=r"is not a valid JSON file",
    ),
    Cause(
        r"config file at '([^']{1,256})' is not a valid JSON file|processor file at '([^']{1,256})' is not a valid "
        r"JSON",
        "the file {0}{1} is no JSON: it is damaged or empty, was edited wrongly, or is a Git LFS pointer or another "
        "file in its place",
        f"{FETCH}, or correct the file on the node.",
        source="transformers/configuration_utils.py",
    ),
    Cause(
        r"^json\.decoder\.JSONDecodeError: ",
        "a JSON file of the model (config.json, or one of the tokenizer or processor, as the traceback tells) is "
        "damaged or empty, was edited wrongly, or is a Git LFS pointer in its place",
        f"{FETCH}, or correct the file on the node.",
        source="transformers/configuration_utils.py, transformers/tokenization_utils_base.py",
        beside=r"transformers/(?:configuration_utils|tokenization_utils\w{0,16}|models/auto/\w{1,32}|processing_utils|"
        r"image_processing\w{0,16}|video_processing\w{0,16})\.py",
    ),
    Cause(
        r"has model type `([^`]{1,128})` but Transformers does not recognize|Unrecognized model type for subconfig: "
        r"(\S{1,64})|Unrecognized model identifier: (\S{1,64})",
        "the Transformers in the image is older than the model: it does not know the model type {0}{1}{2}",
        NEWER,
        source="transformers/models/auto/configuration_auto.py",
    ),
    Cause(
        r"Unrecognized model in (\S{1,256}?)\. Should have a `model_type` key",
        "config.json in {} names no model_type: it is incomplete, or belongs to no model of Transformers (an adapter, "
        "a part, another format)",
        f"{FETCH}, or set model.id to the repository of the whole model; for one of Mistral's format set config-format "
        f""
        "and load-format mistral in serve.args.",
        source="transformers/models/auto/configuration_auto.py",
    ),
    Cause(
        r"Invalid repository ID or local directory specified(?:: '([^']{1,256})')?|No supported config format found(?: "
        r"in (\S{1,256}))?|Could not detect config format for no config file found|does not appear to have a file "
        r"named config\.json|Can't load the configuration of '([^']{1,256})'|Can't find config file in|No such file or "
        r"directory:? .{0,256}/config\.json",
        "the directory of the model {0}{1}{2} has no config.json or is missing: the download is incomplete, or the "
        "path is wrong or not mounted",
        f"Look at the directory on the node (`sparkops models list`); {FETCH[0].lower()}{FETCH[1:]}, or correct "
        "model.path and model.id (the model in serve.args).",
        source="vllm/transformers_utils/config.py",
        unless=r"adapter_config",
    ),
    Cause(
        r"Failed to load mistral '([^']{1,64})' config",
        "config-format mistral was asked for, and the directory of the model has no {}",
        "Remove config-format, tokenizer-mode and load-format mistral from serve.args, or take the repository with "
        "Mistral's own files (model.id).",
        source="vllm/transformers_utils/config.py",
    ),
    Cause(
        r"contains custom code which must be executed|requires you to execute (?:custom code|the "
        r"(?:configuration|tokenizer|code|\w{1,32}) file)|Please (?:pass the argument|set the option) "
        r"`trust_remote_code=True`|consider setting `trust_remote_code=True`|requires you to execute the code",
        "the model brings its own Python code, and the server may not run it without trust-remote-code (or "
        "Transformers is too old to know the model itself)",
        "Read that code, then set trust-remote-code in serve.args (with serve.allow and model.revision); or take a "
        "newer image that supports the model itself.",
        source="transformers/dynamic_module_utils.py",
    ),
    Cause(
        r"No module named '?transformers_modules",
        "a process cannot import the model's own code (trust-remote-code): a dot in the name of its directory, or a "
        "cache of modules (HF_HOME) that this process or node does not have",
        "Rename the directory of the model without dots (model.path), or take an image that supports the model itself, "
        "without trust-remote-code.",
        source="transformers/dynamic_module_utils.py",
    ),
    Cause(
        r"This modeling file requires the following packages that were not found in your environment: ([\w, "
        r".-]{1,128}?)\. Run",
        "the model's own code (trust-remote-code) needs Python packages that the image lacks: {}",
        "Add {} to image.packages and run `sparkops build`, or take an image that supports the model itself.",
        source="transformers/dynamic_module_utils.py",
    ),
    Cause(
        r"Missing requirements in your local environment for `?([^`:]{1,128})",
        "the model's own code ({}) needs Python packages that the image lacks",
        "Add the packages of its requirements.txt to image.packages and run `sparkops build`.",
        source="transformers/dynamic_module_utils.py",
    ),
    Cause(
        r"^(?:ImportError: cannot import name|ModuleNotFoundError: No module named|AttributeError: |TypeError: "
        r").{0,300}(?:transformers|'(?:\w{0,32}Cache|\w{0,64}Config|\w{0,64}Tokenizer|\w{0,64}Model|"
        r"\w{0,64}ForCausalLM)' object)",
        "the model's own code (trust-remote-code) was written for another release of Transformers than the one in the "
        "image",
        "Take the release of transformers that the model's page names (image.packages, image.override), or an image "
        "that supports the model itself, without trust-remote-code.",
        source="transformers/dynamic_module_utils.py",
        beside=OWN_CODE,
    ),
    Cause(
        r"does not appear to have (?:a file|files?) named '?([\w.-]{1,128}\.py)'?",
        "config.json names code of the model ({}), and its directory does not have that file",
        f"{FETCH} (model.exclude must not skip *.py), or take an image that supports the model itself.",
        source=HUB,
    ),
    Cause(
        r"Tokenizer class '?(TokenizersBackend|SentencePieceBackend|PythonBackend|MistralCommonBackend)'?",
        "the tokenizer was saved by Transformers 5 (its class is {}), and the Transformers in the image is older",
        "Take a newer image (image.vllm) or transformers 5 in image.packages; or set tokenizer in serve.args to that "
        "of the original model, or correct tokenizer_class in tokenizer_config.json.",
        source="transformers/models/auto/tokenization_auto.py",
    ),
    Cause(
        r"Tokenizer class '?(\w{1,64})'? (?:does not exist or )?is not currently imported|Tokenizer class '(\w{1,64})' "
        r"specified in the tokenizer config was not found",
        "the Transformers in the image does not know the tokenizer class {0}{1}: the image is too old or too new for "
        "the model, a package for it is missing, or the tokenizer is the model's own code",
        f"{NEWER} For a tokenizer with code of its own set trust-remote-code in serve.args.",
        source="transformers/models/auto/tokenization_auto.py",
    ),
    Cause(
        r"data did not match any variant of untagged enum|unknown variant `(\w{1,64})`, expected one of|missing field "
        r"`\w{1,32}` at line|invalid type: \w{1,16}.{0,64}, expected .{1,64} at line \d",
        "tokenizer.json was written by a newer version of the tokenizers library than the one in the image, which "
        "cannot parse it; or the file is damaged",
        "Take a newer image (image.vllm), or newer tokenizers and transformers in image.packages; else fetch the file "
        "again: `sparkops models pull`.",
        source=TOKENIZERS,
        unless=r"[Ss]afetensor",
    ),
    Cause(
        r"^(?:Exception|ValueError|OSError|TypeError): (?:expected (?:value|ident)|EOF while parsing|trailing "
        r"characters|key must be a string|invalid (?:number|escape)|control character|stream did not contain valid "
        r"UTF-8).{0,64}|expected value at line 1 column 1$",
        "tokenizer.json is damaged, empty or a Git LFS pointer (a text) in its place",
        f"{FETCH} (or `git lfs pull` in a clone).",
        source=TOKENIZERS,
        beside=r"[Tt]okenizer",
    ),
    Cause(
        r"Unknown version: (\S{1,32}) in \S{0,512}tekken\.json",
        "the tokenizer of the model (tekken.json) has version {}, which the mistral_common in the image does "
        "not know: the package is too old",
        "Add a newer mistral_common to image.packages and run `sparkops build`, or take a newer image (image.vllm).",
        source="mistral_common/tokens/tokenizers/tekken.py",
    ),
    Cause(
        r"Error while initializing (?:BPE|WordPiece|Unigram|WordLevel)|Unigram error|Token `[^`]{1,64}` out of"
        r" vocabulary",
        "the files of the tokenizer are damaged, or vocabulary and merges belong to different versions of the model",
        f"{FETCH} (--replace).",
        source=TOKENIZERS,
        unless=r"[Tt]oken id",
    ),
    Cause(
        r"requires the (\w{1,32}) library but it was not found|`?(tiktoken|sentencepiece|blobfile|protobuf)`? is "
        r"required to read|You need to have (sentencepiece) or tiktoken|You need to install (\w{1,32}) to use",
        "the tokenizer or processor of the model needs the package {0}{1}{2}{3}, which the image lacks (or its file "
        "tokenizer.json is missing)",
        "Add {0}{1}{2}{3} to image.packages and run `sparkops build`; look for missing files with `sparkops models "
        "verify`.",
        source="transformers/utils/import_utils.py",
    ),
    Cause(
        r"Converting from (?:SentencePiece and )?[Tt]iktoken failed|Couldn't instantiate the backend tokenizer",
        "the tokenizer cannot be built: its files (tokenizer.json, tokenizer.model) are missing or damaged, or the "
        "image lacks sentencepiece or tiktoken",
        f"{FETCH}; else add sentencepiece and tiktoken to image.packages and run `sparkops build`.",
        source="transformers/tokenization_utils_tokenizers.py",
    ),
    Cause(
        r"No tokenizer file found",
        "tokenizer-mode mistral was asked for, and the model has no tokenizer in the format of Mistral (tekken.json or "
        "tokenizer.model)",
        "Remove tokenizer-mode from serve.args, or take the repository that has tekken.json (model.id).",
        source="vllm/tokenizers/mistral.py",
        beside=r"tokenizer_mode(?:=|': )'?mistral|tokenizer-mode[ =]mistral|tokenizers/mistral\.py",
    ),
    Cause(
        r"Can't load (?:the )?tokenizer for '([^']{1,256})'|No tokenizer file found|Could not find "
        r"tiktoken\.model|Found 0 files matching the pattern|(?:tiktoken\.model|tokenizer\.tok\.json) not found at",
        "the directory of the model has no complete files of a tokenizer: an incomplete download, or a fine-tune that "
        "was saved without its tokenizer {}",
        "Copy the tokenizer files (tokenizer.json, tokenizer_config.json) of the original (base) model into the "
        "directory, "
        f"or set tokenizer in serve.args to its directory. {FETCH}.",
        source="transformers/tokenization_utils_base.py",
    ),
    Cause(
        r"^IndexError: list index out of range|^TypeError: .{0,64}NoneType",
        "the tokenizer of the model is empty: its files are missing in the directory of the model, and an empty one "
        "was made without a warning",
        f"{FETCH} (tokenizer.json, tokenizer_config.json), or set tokenizer in serve.args to the directory of the "
        f"original model.",
        source="transformers/tokenization_utils_tokenizers.py",
        beside=r"(?:reply_label_ids|type_label_ids)\(tokenizer|tokenizer\.vocab_size == 0|[Ee]mpty tokenizer",
    ),
    Cause(
        r"(?:No such file or directory:? |not a file|does not appear to have (?:a file|files?) named "
        r").{0,256}(?:tokenizer(?:\.json|\.model|_config\.json)|tekken\.json|vocab\.(?:json|txt)|merges\.txt|"
        r"spiece\.model)",
        "a file of the tokenizer is missing in the directory of the model: an incomplete download, or a fine-tune that "
        "was saved without its tokenizer",
        f"{FETCH}; or copy the tokenizer files of the original (base) model into the directory.",
        source=HUB,
    ),
    Cause(
        r"Unable to load vocabulary from file|Unable to load tokenizer model from SPM|could not parse "
        r"ModelProto|sentencepiece.{0,64}Internal:|Error parsing line b",
        "the vocabulary of the tokenizer (tokenizer.model) is damaged, or a Git LFS pointer in place of the file",
        f"{FETCH} (or `git lfs pull` in a clone).",
        source="transformers/tokenization_utils_base.py",
    ),
    Cause(
        r"Failed to load the tokenizer\. If the tokenizer is a custom tokenizer|Cannot use the fast tokenizer in slow",
        "the tokenizer of the model has code of its own, which the server may not run, or tokenizer-mode does not fit "
        "it",
        "Remove tokenizer-mode from serve.args; for a tokenizer with code of its own set trust-remote-code in "
        "serve.args.",
        source="vllm/tokenizers/hf.py",
    ),
    Cause(
        r"Can't load (image|video|feature|audio)? ?(?:processor|extractor) for '([^']{1,256})'|(?:does not appear to "
        r"have (?:a file|files?) named|No such file or directory:?) "
        r".{0,256}(?:preprocessor_config|processor_config)\.json",
        "the directory of this multimodal model lacks the settings of its {0} processor (preprocessor_config.json), as "
        "a checkpoint that was merged or quantized without it, or an incomplete download {1}",
        "Copy preprocessor_config.json (and processor_config.json) of the original model into the directory, or fetch "
        "the model again with `sparkops models pull`, or take a whole repository (model.id).",
        source="transformers/image_processing_base.py",
    ),
    Cause(
        r"Unrecognized (image processor|feature extractor|video processor|processing class) in (\S{1,256}?)\. |(Cannot "
        r"(?:determine processor class|find config for \w{1,64} in processor_config))|(?:image_processor_type|Image "
        r"processor class|processor class) .{0,64}(?:not found|does not exist|not recogni)",
        "the settings of the processor (preprocessor_config.json, processor_config.json) are missing or incomplete in "
        "the directory of the model, or the Transformers in the image is too old to know its class",
        f"Copy these files of the original model into the directory. {NEWER}",
        source="transformers/models/auto/processing_auto.py",
    ),
    Cause(
        r"Invalid type of HuggingFace processor|Invalid type of HuggingFace config|Could not find module (\w{1,64}) in "
        r"`transformers`",
        "the Transformers in the image is of another version than the model or the engine needs: it does not know the "
        "class of its processor or config {}",
        NEWER,
        source="vllm/transformers_utils/processor.py",
    ),
    Cause(
        r"does not appear to have (?:a file|files?) named '?\(?([^\s'.]{1,128}(?:\.[^\s'.]{1,32}){0,4})",
        "the directory or repository of the model has no file {}: an incomplete download, or a model of another format",
        f"{FETCH}, or correct model.id and model.path.",
        source=HUB,
        unless=r"adapter_config",
    ),
    Cause(
        r"Unrecognized configuration class .{0,256}for this kind of AutoModel: (\w{1,64})|has no `?auto_map|is not "
        r"consistent with the (?:config class|model type) you passed",
        "the Transformers in the image has no model of this kind ({}) for the model's configuration: it is too old, or "
        "the model serves another task",
        NEWER,
        source="transformers/models/auto/auto_factory.py",
    ),
    Cause(
        r"`rope_scaling` must be a dictionary with|rope_scaling.{0,32}'?s? (?:type|factor|name) field must be|Found "
        r"conflicts between 'rope_type|Missing required keys in `rope_(?:parameters|scaling)`|Legacy "
        r"rope_type|[Uu]nrecognized keys in `rope_(?:parameters|scaling)`.{0,200}Error|partial_rotary_factor=\S{1,32} "
        r"must be",
        "the settings of RoPE scaling (rope_scaling, rope_parameters in config.json or hf-overrides) are wrong or "
        "incomplete, or of a form that the Transformers in the image is too old or too new for",
        "Correct or remove rope_scaling in hf-overrides (json-model-override-args) of serve.args, or take an image "
        "whose transformers fits the model.",
        source="transformers/modeling_rope_utils.py",
    ),
    Cause(
        r"StrictDataclass(?:Class|Field)\w{1,32}Error|[Cc]lass validation error for validator|Validation error for "
        r"field '?(\w{1,64})'?|`num_hidden_layers` \(\d{1,6}\) must be equal to the number of|entries must be in "
        r"\(|`layer_types` entries must",
        "a value of config.json {} is not valid for the Transformers in the image: the file (or hf-overrides) is "
        "wrong, or the image is too old or too new for the model",
        f"Remove hf-overrides from serve.args. {NEWER} {FETCH}.",
        source="transformers/configuration_utils.py, huggingface_hub/dataclasses.py",
    ),
    Cause(
        r"__init__\(\) (?:got an unexpected keyword argument|missing \d{1,2} required positional) .{0,128}",
        "config.json of the model has settings that its class in the image does not know, or lacks some: the "
        "Transformers in the image is of another version than the model needs",
        NEWER,
        source="transformers/configuration_utils.py",
        unless=r"ModelInfo|SafeTensorsInfo|RepoSibling|RepoFile|BlobLfs",
        beside=r"transformers/(?:configuration_utils|models/auto|tokenization_utils\w{0,32}|processing_utils)\.py",
    ),
    Cause(
        r"'(\w{1,64}Config)' object has no attribute '(\w{1,64})'",
        "the engine misses {1} in the model's config ({0}): the Transformers in the image is of another version than "
        "the engine and the model need, or config.json is incomplete",
        NEWER,
        source="transformers/configuration_utils.py",
        unless=r"'(?:Vllm|Model|Cache|Parallel|Scheduler|Compilation|Load|LoRA|Speculative|Attention|Kernel)Config'|"
        r"Quant|Fp8|ServerArgs|torch",
    ),
    Cause(
        r"does not have `?num_attention_heads`? attribute|Couldn't determine number of kv heads|Could not determine "
        r"the number of key-value attention heads",
        "config.json of the model lacks sizes that the engine needs: the engine is too old for the model, or the file "
        "belongs to no language model",
        f"{NEWER} Or correct model.id.",
        source="vllm/transformers_utils/config.py",
    ),
    Cause(
        r"Transformers version (\S{1,32}) is not supported for model|please upgrade transformers|requires transformers "
        r"?>=|transformers (?:>=|version)[^.]{0,64} is required|upgrade (?:to )?transformers",
        "the Transformers in the image {} is too old for this model",
        NEWER,
        source="sglang/srt/configs/model_config.py",
        unless=r"[Ww]arning|deprecat",
    ),
    Cause(
        r"Unknown quantization type, got (\S{1,64})",
        "the Transformers in the image does not know the quantization {} of the checkpoint",
        NEWER,
        source="transformers/quantizers/auto.py",
    ),
    Cause(
        r"Template(?:Syntax|Assertion)Error|jinja2\.exceptions\.(?:Undefined|Security)Error|Error when "
        r"(?:compiling|parsing AST of) Jinja",
        "the chat template has a fault in its Jinja: it is invalid, incomplete or written for another program",
        "Correct the template, or name another one with chat-template in serve.args (one of image.mods lies at "
        "/opt/sparkops/templates/NAME.jinja), or remove chat-template.",
        source="jinja2",
        unless=r"[Ww]arm-?up|[Ii]gnor",
    ),
    Cause(
        r"default chat template is no longer allowed|chat_template is not set and no template|does not have a chat "
        r"template|No chat template available",
        "the model has no chat template: it is a base model, or its chat template was lost when it was saved",
        "Set chat-template in serve.args (one of image.mods lies at /opt/sparkops/templates/NAME.jinja), or take the "
        "instruct model (model.id).",
        source="transformers/tokenization_utils_base.py, vllm/renderers/hf.py",
    ),
    Cause(
        r"chat_template\.json file with separate template files|multiple chat templates (?:with no default|but none)",
        "the directory of the model has several chat templates, none of which is the default",
        "Set chat-template in serve.args to one of them, or fetch the model into an empty directory (`sparkops models "
        "pull --replace`).",
        source="transformers/processing_utils.py",
    ),
    Cause(
        r"chat_template is not supported for Mistral tokenizers",
        "a chat template was given, and the tokenizer in Mistral's format takes none",
        "Remove chat-template from serve.args, or set tokenizer-mode to hf (auto).",
        source="vllm/tokenizers/mistral.py",
    ),
)
