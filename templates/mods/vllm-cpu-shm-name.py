"""vLLM's CPU ranks share memory by a name that is the same on every host, although memory is not shared there.

With the host's name in it, ranks of two hosts see that they differ and talk over the network instead.
"""

import mend

OLD = 'instance_identifier = os.environ["VLLM_DIST_IDENT"]\n'
NEW = 'instance_identifier = os.environ["VLLM_DIST_IDENT"] + os.uname().nodename\n'

mend.rewrite("vllm", "distributed/device_communicators/cpu_communicator.py", mend.Edit(old=OLD, new=NEW))
