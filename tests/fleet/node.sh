#!/bin/bash
# Runs inside a node. `boot` is PID 1; the others are called by `docker exec`.
set -u

# Boot and `ready` may meet: one of them starts a daemon, the other finds it. The
# daemon itself must not inherit the lock, or it would hold it for life.
locked() { (flock 9 && "$@" 9>&-) 9>/run/fleet.lock; }

# Numbers are read from pid files: by name one would also find a container's processes.
alive() { [ -s "$1" ] && [[ $(cat "/proc/$(cat "$1")/stat" 2>/dev/null) == *"($2) "[!Z]* ]]; }

ENGINE=/run/docker.pid
CONTAINERD=/run/docker/containerd/containerd.pid

start_sshd() {
  ssh-keygen -A >/dev/null
  alive /run/sshd.pid sshd && return
  mkdir -p /run/sshd
  /usr/sbin/sshd
}

start_engine() {
  alive "$ENGINE" dockerd && return
  rm -f "$ENGINE"
  alive "$CONTAINERD" containerd || rm -f "$CONTAINERD"
  # It stays as it is if a test has written it.
  if [ "$FLEET_STORE" = containerd ] && [ ! -e /etc/docker/daemon.json ]; then
    mkdir -p /etc/docker
    echo '{"features": {"containerd-snapshotter": true}}' >/etc/docker/daemon.json
  fi
  local options=()
  # A path narrower than 1500 bytes breaks large downloads of containers that do not know it.
  [ -e /sys/class/net/eth0/mtu ] && options+=(--mtu "$(cat /sys/class/net/eth0/mtu)")
  # Containers of this engine cannot reach the resolver that listens on the node's loopback.
  for server in ${FLEET_DNS:-}; do options+=(--dns "$server"); done
  setsid dockerd "${options[@]}" </dev/null >>/var/log/dockerd.log 2>&1 &
  # Until its pid file is written, another caller would start a second one, and both would end.
  while kill -0 $! 2>/dev/null && ! alive "$ENGINE" dockerd; do sleep 0.05; done
}

start_all() {
  start_sshd
  [ "$FLEET_ENGINE" = yes ] && start_engine
}

# Not containerd: on a real node it is a service of its own, and keeps the containers.
kill_engine() {
  kill -KILL "$(cat "$ENGINE")"
  while alive "$ENGINE" dockerd; do sleep 0.05; done
}

shut_down() {
  alive "$ENGINE" dockerd && kill -TERM "$(cat "$ENGINE")"
  while alive "$ENGINE" dockerd; do sleep 0.1; done
  exit 0
}

boot() {
  trap shut_down TERM INT
  mount -o remount,rw /proc/sys  # read-only, it fails every container network
  mount --make-rshared /         # as an init system does
  cat /proc/sys/kernel/random/uuid >/run/boot_id # the kernel's own is the host's, and never changes
  mount --bind /run/boot_id /proc/sys/kernel/random/boot_id
  if [ "$FLEET_ENGINE" = no ]; then
    rm -rf /usr/bin/docker /usr/sbin/dockerd /usr/bin/containerd* /usr/libexec/docker
  fi
  locked start_all
  while :; do sleep infinity & wait $!; done # bash reaps what other processes leave
}

install_key() {
  local key home
  key=$(cat)
  for home in /root /home/ops; do
    install -d -m 700 -o "$(stat -c %U $home)" -g "$(stat -c %G $home)" $home/.ssh
    echo "$key" >$home/.ssh/authorized_keys
  done
}

heal() {
  iptables -w -t mangle -F PREROUTING
  iptables -w -t mangle -F POSTROUTING
}

engine_version() {
  local version
  for _ in $(seq 300); do
    version=$(docker version --format '{{.Server.Version}}' 2>/dev/null) && echo "$version" && return
    sleep 0.2
  done
  tail -n 1 /var/log/dockerd.log >&2
  return 1
}

# Reads the key that may log in; prints the host key, then the engine's version.
ready() {
  install_key
  heal
  locked start_all
  cut -d ' ' -f 1,2 /etc/ssh/ssh_host_ed25519_key.pub
  [ "$FLEET_ENGINE" = no ] || engine_version
}

change_host_key() {
  rm -f /etc/ssh/ssh_host_*
  kill "$(cat /run/sshd.pid)"
  while alive /run/sshd.pid sshd; do sleep 0.05; done
  locked start_sshd
}

case $1 in
boot | ready | heal | kill_engine | change_host_key) "$1" ;;
start_engine) locked start_engine && engine_version ;;
*) echo "fleet-node: unknown verb $1" >&2 && exit 2 ;;
esac
