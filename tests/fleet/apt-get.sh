#!/bin/sh
# Stands before apt-get in the prepared base images: Debian's lists, which take five seconds of a core, are fetched and
# read only if a package to install is missing. The lists are then fetched by the installation.
APT=/usr/bin/apt-get
command=
missing=
for word; do
  case $word in
  -*) ;;
  *)
    if [ -z "$command" ]; then
      command=$word
    elif [ "$(dpkg-query -W -f '${db:Status-Status}' "$word" 2>/dev/null)" != installed ]; then
      missing=yes
    fi
    ;;
  esac
done
case $command,$missing in
update, | install,) exit 0 ;;
install,yes) $APT -qq update || exit ;;
esac
exec $APT "$@"
