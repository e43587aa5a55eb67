"""A server that a deploy takes for vLLM: its endpoints, metrics and log lines, without a model or a GPU.

It knows the answers to a few questions and talks fluent English otherwise. Every way in which a real engine can
fail is a knob: an environment variable, read once, strictly. Nothing but the standard library is used.

| STAND_IN_            | value       | default | what it does                                                         |
| -------------------- | ----------- | ------- | -------------------------------------------------------------------- |
| START_S              | seconds     | 0       | length of the start, spread over its stages as a real one is         |
| SILENT_S             | seconds     | 0       | as much of START_S goes by without a log line, while compiling       |
| SILENT_CPU           | 0, 1        | 1       | whether the silence uses CPU time (a third of a core)                |
| HANG_AT              | 0 to 100    |         | percent of the weights at which the start hangs for ever             |
| CRASH_AT             | 0 to 100    |         | percent of the weights at which the engine core crashes              |
| FATAL                | text        |         | what the crash says, as "CUDA out of memory"; alone: CRASH_AT=100    |
| MEMORY_MIB           | MiB         | 0       | memory that is taken and written to while the weights load           |
| TTFT_S               | seconds     | 0.02    | time to the first token                                              |
| TOK_S                | tokens/s    | 50      | decode speed of one stream                                           |
| STREAM_S             | seconds     | 4       | length of prose when the request sets no max_tokens                  |
| ANSWERS              | a mode      | true    | true, nonsense, bangs, noise, empty, wrong_name, raw_tools,          |
|                      |             |         | think_leak: see stand_in/answer.py                                   |
| HEALTH_ONLY          | 0, 1        | 0       | /health returns 200, and no completion ever ends                     |
| HANG_AFTER_S         | seconds     |         | HEALTH_ONLY, so long after serving began                             |
| ERROR_RATE           | 0 to 1      | 0       | share of the completions that are answered with 500                  |
| DIE_AFTER_S          | seconds     |         | the engine core dies so long after serving began                     |
| DIE_AFTER_REQUESTS   | 1 and more  |         | the engine core dies at the completion after so many                 |
| IGNORE_TERM          | 0, 1        | 0       | SIGTERM does nothing                                                 |
| KEEP_MEMORY_S        | seconds     | 0       | after SIGTERM and the last answer, the process stays so long         |
| RELEASE_NAME         | text        |         | said in the header x-stand-in of every response, and by /version     |

VLLM_API_KEY is vLLM's own: paths under /v1 want it as a bearer token.
"""

VERSION = "0.32.0"
