"""A server with vLLM's endpoints, metrics and log lines, without a model or a GPU.

It answers a few questions correctly, and others with fluent English. Each failure of a real engine is a knob: an
environment variable, read once, at the start; an unknown one is an error. Standard library only.

| STAND_IN_            | value       | default | effect                                                               |
| -------------------- | ----------- | ------- | -------------------------------------------------------------------- |
| START_S              | seconds     | 0       | length of the start, spread over the stages of a real one            |
| SILENT_S             | seconds     | 0       | part of START_S without a log line, while compiling                  |
| SILENT_CPU           | 0, 1        | 1       | whether this part uses CPU time (a third of a core)                  |
| HANG_AT              | 0 to 100    |         | percent of the weights at which the start hangs forever              |
| CRASH_AT             | 0 to 100    |         | percent of the weights at which the engine core crashes              |
| FATAL                | text        |         | error of the crash, as "CUDA out of memory"; alone: CRASH_AT=100     |
| MEMORY_MIB           | MiB         | 0       | memory that is allocated and written to while the weights load       |
| TTFT_S               | seconds     | 0.02    | time to the first token                                              |
| TOK_S                | tokens/s    | 50      | decode speed of one stream                                           |
| SLOW_AFTER_S         | seconds     |         | time from the first listening until TOK_S is SLOW_TOK_S              |
| SLOW_TOK_S           | tokens/s    | 25      | decode speed of one stream from then on                              |
| STREAM_S             | seconds     | 4       | length of prose when the request sets no max_tokens                  |
| ANSWERS              | a mode      | true    | true, nonsense, bangs, noise, empty, wrong_name, raw_tools,          |
|                      |             |         | think_leak: see stand_in/answer.py                                   |
| ANSWERS_AFTER_S      | seconds     | 0       | time from the first listening to ANSWERS; until then they are true   |
| HEALTH_ONLY          | 0, 1        | 0       | /health returns 200, and no completion ends                          |
| HANG_AFTER_S         | seconds     |         | time from the first listening to HEALTH_ONLY                         |
| ERROR_RATE           | 0 to 1      | 0       | share of the completions that return 500                             |
| CORE_DIES_AFTER_S    | seconds     |         | time from the first listening to the end of the core's process: open |
|                      |             |         | streams end with an error and [DONE], and 5 s later the server ends  |
| DIE_AFTER_S          | seconds     |         | time from the first listening to a crash of the engine core          |
| DIE_AFTER_REQUESTS   | 1 and more  |         | number of completions before a crash of the engine core              |
| IGNORE_TERM          | 0, 1        | 0       | SIGTERM does nothing                                                 |
| KEEP_MEMORY_S        | seconds     | 0       | time that the process stays after SIGTERM and the last answer        |
| RELEASE_NAME         | text        |         | value of the header x-stand-in of every response, and in /version    |

SIGUSR1 makes it hang as HEALTH_ONLY does, with the completions in progress; SIGUSR2 ends that.

VLLM_API_KEY is vLLM's own variable: paths under /v1 require it as a bearer token.
"""

VERSION = "0.32.0"
