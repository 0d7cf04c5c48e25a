#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# README's two commands in a bare Debian: as root, which installs what is missing by itself, and as a user without sudo, who is told
# the one line that does. Each in its own new root made by mmdebstrap; mounts and processes live in namespaces that end with the step.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

suite=bookworm
mirror=
keep=0
who=()

usage() {
    cat <<END
usage: scripts/fresh.sh [--suite NAME] [--mirror URL] [--keep] [root] [user] [ci]     (as root; default: root user)
  root, user     README's two commands as root, as a user without sudo
  ci             .ci/run
  --suite NAME   Debian release (default: $suite)
  --mirror URL   Debian mirror (default: mmdebstrap's)
  --keep         leave the roots and logs where they are
END
}

while [ $# -gt 0 ]; do
    case $1 in
    --suite) suite=${2:?--suite wants a name} && shift ;;
    --mirror) mirror=${2:?--mirror wants an address} && shift ;;
    --keep) keep=1 ;;
    root | user | ci) who+=("$1") ;;
    --help | -h) usage && exit 0 ;;
    *) usage >&2 && exit 2 ;;
    esac
    shift
done
[ ${#who[@]} -gt 0 ] || who=(root user)

fail() {
    printf 'fresh.sh: failed: %s\n' "$*" >&2
    exit 1
}
[ "$(id -u)" = 0 ] || { echo "fresh.sh: needs root, to make a root directory of its own: sudo scripts/fresh.sh" >&2 && exit 2; }
for tool in mmdebstrap unshare chroot git; do
    command -v "$tool" >/dev/null || { echo "fresh.sh: needs $tool: apt-get install -y mmdebstrap util-linux git" >&2 && exit 2; }
done

work=$(mktemp -d "${TMPDIR:-/var/tmp}/tpcomm-fresh.XXXXXX")
clean_up() {
    # Nothing is mounted here as seen from outside; --one-file-system makes sure that nothing beyond is ever removed.
    if [ "$keep" = 1 ]; then echo "kept: $work"; else rm -rf --one-file-system "$work"; fi
}
trap clean_up EXIT
trap 'exit 130' INT TERM HUP

# in_root ROOT USER NET COMMAND ...: run a command in a root directory. NET: online or offline. A new process namespace, so that
# nothing outlives the step; the caller's environment stays outside, but for the proxies.
in_root() {
    local root=$1 user=$2 net=() environment=(PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 TERM=dumb)
    local name home=/root
    [ "$3" = online ] || net=(--net)
    shift 3
    [ "$user" = root ] || home=/home/$user
    for name in http_proxy https_proxy no_proxy; do
        [ -z "${!name:-}" ] || environment+=("$name=${!name}")
    done
    # A machine whose pip needs a certificate of its own.
    [ -z "${PIP_CERT:-}" ] || environment+=("PIP_CERT=/etc/pip-cert.pem")
    # shellcheck disable=SC2016
    unshare --mount --pid --fork --kill-child "${net[@]}" bash -euc '
        root=$1 user=$2 home=$3
        shift 3
        mount --make-rprivate /
        mount -t proc proc "$root/proc"
        mount --rbind /sys "$root/sys"
        mount -t tmpfs -o mode=755 dev "$root/dev"
        for device in null zero full random urandom tty; do
            touch "$root/dev/$device"
            mount --bind "/dev/$device" "$root/dev/$device"
        done
        mkdir "$root/dev/pts" "$root/dev/shm"
        mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
        ln -s pts/ptmx "$root/dev/ptmx"
        ln -s /proc/self/fd "$root/dev/fd"
        ln -s fd/0 "$root/dev/stdin"
        ln -s fd/1 "$root/dev/stdout"
        ln -s fd/2 "$root/dev/stderr"
        mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
        ip link set lo up 2>/dev/null || true
        exec chroot --userspec="$user:$user" --groups= "$root" /usr/bin/env -i "HOME=$home" "USER=$user" "$@"
    ' in_root "$root" "$user" "$home" "${environment[@]}" "$@" </dev/null
}

# step LOG WHAT COMMAND ...: run it, its output in LOG, and say how long it took. Returns its status.
step() {
    local log=$1 what=$2 start=$SECONDS status=0
    shift 2
    "$@" >"$log" 2>&1 || status=$?
    took=$((SECONDS - start))
    printf '  %-58s exit %d, %d s\n' "$what" "$status" "$took"
    return "$status"
}
show() { sed 's/^/    | /' "$1" | tail -n "${2:-40}"; }

make_root() { # USER
    root=$work/$1
    mkdir "$root"
    tar -C "$root" -xf "$work/base.tar" --exclude='./dev/*'
    rm -f "$root/etc/resolv.conf"
    cp -L /etc/resolv.conf "$root/etc/resolv.conf"
    [ -z "${PIP_CERT:-}" ] || cp -L "$PIP_CERT" "$root/etc/pip-cert.pem"
    in_root "$root" root online useradd --create-home --shell /bin/bash newcomer
    place=/home/newcomer/tpcomm
    mkdir "$root$place"
    # What a clone has, as it is in the working tree now.
    git ls-files -z | while IFS= read -r -d '' file; do [ ! -e "$file" ] || printf '%s\0' "$file"; done |
        tar -C . --null -T - -cf - | tar -C "$root$place" --no-same-owner -xf -
    name=root
    if [ "$1" = user ]; then
        name=newcomer
        in_root "$root" root online chown -R newcomer:newcomer "$place"
    fi
}

# The line that a script printed for a user, without its sudo.
told_line() { sed -n 's/^    sudo apt-get/apt-get/p' "$1" | sed 's/&& sudo /\&\& /g'; }

# command_as NAME SCRIPT: run one of README's commands. A user is first told what is missing; then root runs that very line.
command_as() {
    local script=$1 log=$work/$name-$1.log status=0 line
    step "$log" "$script as $name" in_root "$root" "$name" online "$place/scripts/$script" || status=$?
    if [ "$name" != root ] && [ "$status" = 2 ]; then
        line=$(told_line "$log")
        [ "$(printf '%s' "$line" | grep -c .)" = 1 ] || { show "$log" && fail "$script did not print the one line"; }
        printf '    told: %s\n' "$line"
        step "$log.install" "that line, as root" in_root "$root" root online env DEBIAN_FRONTEND=noninteractive bash -c "$line" ||
            { show "$log.install" && fail "the line that $script printed"; }
        status=0
        step "$log" "$script as $name, again" in_root "$root" "$name" online "$place/scripts/$script" || status=$?
    fi
    [ "$status" = 0 ] || { show "$log" && fail "$script as $name"; }
}

echo "making a bare Debian $suite"
step "$work/mmdebstrap.log" "mmdebstrap --variant=minbase $suite" \
    mmdebstrap --variant=minbase "$suite" "$work/base.tar" ${mirror:+"$mirror"} || { show "$work/mmdebstrap.log" && fail "mmdebstrap"; }

for each in "${who[@]}"; do
    make_root "$each"
    if [ "$each" = ci ]; then
        step "$work/ci.log" ".ci/run" in_root "$root" root online bash "$place/.ci/run" || { show "$work/ci.log" && fail ".ci/run"; }
        grep '^===.*: ok' "$work/ci.log" | sed 's/^/    | /'
        continue
    fi
    if [ "$name" != root ]; then
        # The user's first run must stop at the message and leave no trace but the message.
        status=0
        step "$work/first.log" "demo.sh as $name, with nothing installed" in_root "$root" "$name" online "$place/scripts/demo.sh" || status=$?
        if [ "$status" != 2 ] || [ -z "$(told_line "$work/first.log")" ] || [ -e "$root$place/build" ]; then
            show "$work/first.log"
            fail "demo.sh did not stop with the one line"
        fi
    fi
    command_as demo.sh
    show "$work/$name-demo.sh.log" 30
    step "$work/$name-offline.log" "demo.sh as $name, second run, offline" in_root "$root" "$name" offline "$place/scripts/demo.sh" ||
        { show "$work/$name-offline.log" && fail "demo.sh offline as $name"; }
    [ "$took" -lt 20 ] || fail "the second run took $took s, not under 20"
    command_as test.sh
    show "$work/$name-test.sh.log" 12
done
echo "fresh.sh: works: ${who[*]}"
