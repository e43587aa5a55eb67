"""Log lines of vLLM 0.32 during its start and after a crash, in console.tell_script's notation.

The lines of a start without compilation are from a real one on a CPU; those of compiling and graph capture from a GPU.
"""

STARTING = """\
A INFO [api_utils.py:347]        █     █     █▄   ▄█
A INFO [api_utils.py:347]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version {version}
A INFO [api_utils.py:347]   █▄█▀ █     █     █     █  model   {model}
A INFO [api_utils.py:347]    ▀▀  ▀▀▀▀▀ ▀▀▀▀▀ ▀     ▀
A INFO [api_utils.py:286] non-default args: {given}
A INFO [model.py:733] Resolved architecture: StandInForCausalLM
A INFO [model.py:2152] Using max model len {model_len}
A INFO [compilation.py:317] Enabled custom fusions: norm_quant, act_quant
E INFO [core.py:133] Initializing a V1 LLM engine (v{version}) with config: model='{model}', \
speculative_config=None, tokenizer='{model}', skip_tokenizer_init=False, tokenizer_mode=auto, revision=None, \
tokenizer_revision=None, trust_remote_code=False, dtype=torch.bfloat16, max_seq_len={model_len}, download_dir=None, \
load_format=auto, tensor_parallel_size=1, pipeline_parallel_size=1, data_parallel_size=1, quantization=None, \
enforce_eager=False, kv_cache_dtype=auto, device_config=stand-in, seed=0, served_model_name={name}
"""

JOINING = """\
W INFO [parallel_state.py:1906] world_size=1 rank=0 local_rank=0 \
distributed_init_method=file:///tmp/vllm_dist_stand_in backend=gloo
W INFO [parallel_state.py:2350] rank 0 in world size 1 is assigned as DP rank 0, PP rank 0, PCP rank 0, TP rank 0, \
ETP rank 0, EP rank N/A, EPLB rank N/A
"""

LOADING = """\
W INFO [cpu_model_runner.py:68] Starting to load model {model}...
W INFO [base_loader.py:82] Initializing model took 0.167885 seconds
"""
SHARD = "\rLoading safetensors checkpoint shards: {percent:3d}% Completed | {done}/{all} [{past}<{left}, {rate}]"
LOADED = "W INFO [default_loader.py:501] Loading weights took {seconds:.2f} seconds"

COMPILING = """\
W INFO [backends.py:1089] Using cache directory: /root/.cache/vllm/torch_compile_cache/stand-in/rank_0_0/backbone for \
vLLM's torch.compile
W INFO [backends.py:1148] Dynamo bytecode transform time: 4.66 s
"""
COMPILED = """\
W INFO [backends.py:391] Compiling a graph for compile range (1, 2048) takes 5.13 s
W INFO [monitor.py:53] torch.compile took 9.79 s in total
"""

SIZING = """\
E INFO [utils.py:347] Using LBHNC KV cache layout.
W INFO [cpu_worker.py:260] Explicitly set (1.0/12.21) GiB for KV cache on node 0.
E INFO [kv_cache_utils.py:2327] CPU KV cache size: 2,097,152 tokens, Maximum concurrency for {model_len:,} tokens per \
request: {concurrency:.2f}x
"""

TUNING = """\
W INFO [kernel_warmup.py:107] Warming up FlashInfer attention.
W INFO [autotuner.py:262] flashinfer.jit: [Autotuner]: Autotuning process starts ...
W INFO [autotuner.py:268] flashinfer.jit: [Autotuner]: Autotuning process ends
"""

GRAPHS = """\
| Capturing CUDA graphs (mixed prefill-decode, PIECEWISE): 100%|██████████| 35/35 [00:02<00:00, 16.42it/s]
| Capturing CUDA graphs (decode, FULL): 100%|██████████| 35/35 [00:01<00:00, 21.80it/s]
"""

WARMING = """\
W INFO [gpu_model_runner.py:6122] Graph capturing finished in 4 secs, took 0.02 GiB
W INFO [jit_monitor.py:84] Kernel JIT monitor activated; monitored JIT compilations during inference will use mode=warn.
"""

OPENING = """\
E INFO [core.py:402] init engine (profile, create kv cache, warmup model) took {seconds:.2f} s
A INFO [entry.py:136] Supported tasks: ['generate']
A INFO [factories.py:89] Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out to enable them.
A INFO [hf.py:648] Detected the chat template content format to be 'string'. You can set \
`--chat-template-content-format` to override this.
A INFO [entry.py:140] Starting vLLM server on http://{host}:{port}
A INFO [launcher.py:186] Available routes are:
A INFO [launcher.py:195] Route: /version, Methods: GET
A INFO [launcher.py:195] Route: /health, Methods: GET
A INFO [launcher.py:195] Route: /metrics, Methods: GET
A INFO [launcher.py:195] Route: /v1/models, Methods: GET
A INFO [launcher.py:195] Route: /ping, Methods: GET
A INFO [launcher.py:195] Route: /ping, Methods: POST
A INFO [launcher.py:195] Route: /v1/chat/completions, Methods: POST
A INFO [launcher.py:195] Route: /v1/completions, Methods: POST
"""

SERVING = """\
| INFO:     Started server process [{pid}]
| INFO:     Waiting for application startup.
| INFO:     Application startup complete.
"""

SHUTTING = """\
| INFO:     Shutting down
| INFO:     Waiting for application shutdown.
| INFO:     Application shutdown complete.
| INFO:     Finished server process [{pid}]
"""

CRASHED = """\
E ERROR [core.py:1219] EngineCore failed to start.
E ERROR [core.py:1219] Traceback (most recent call last):
E ERROR [core.py:1219]   File "/opt/venv/lib/python3.11/site-packages/vllm/v1/engine/core.py", line 1187, in \
run_engine_core
E ERROR [core.py:1219]     engine_core = EngineCoreProc(*args, engine_index=dp_rank, **kwargs)
E ERROR [core.py:1219]   File "/opt/venv/lib/python3.11/site-packages/vllm/v1/executor/abstract.py", line 109, in \
__init__
E ERROR [core.py:1219]     self._init_executor()
E ERROR [core.py:1219] {error}
E|Process EngineCore:
E|Traceback (most recent call last):
E|  File "/usr/lib/python3.11/multiprocessing/process.py", line 314, in _bootstrap
E|    self.run()
E|{error}
A|Traceback (most recent call last):
A|  File "/opt/venv/bin/vllm", line 10, in <module>
A|    sys.exit(main())
A|RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {{'EngineCore': 1}}
"""

DIED = """\
E ERROR [core.py:1228] EngineCore encountered a fatal error.
E ERROR [core.py:1228] Traceback (most recent call last):
E ERROR [core.py:1228]   File "/opt/venv/lib/python3.11/site-packages/vllm/v1/engine/core.py", line 1221, in \
run_engine_core
E ERROR [core.py:1228]     engine_core.run_busy_loop()
E ERROR [core.py:1228] {error}
A ERROR [async_llm.py:733] AsyncLLM output_handler failed.
A ERROR [async_llm.py:733] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack \
trace (above) for the root cause.
"""

STATS = (
    "A INFO [loggers.py:273] Engine 000: Avg prompt throughput: {prompt:.1f} tokens/s, Avg generation throughput: "
    "{generated:.1f} tokens/s, Running: {running} reqs, Waiting: {waiting} reqs, GPU KV cache usage: {usage:.1f}%, "
    "Prefix cache hit rate: 0.0%"
)
