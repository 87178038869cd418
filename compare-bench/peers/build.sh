#!/bin/sh
# build.sh LANGUAGE NAME FOLDER: prepares the program that measures the library NAME, and prints its command, a word
# in each line. What is made, but for a package of Cargo, goes into FOLDER. Java takes its libraries from CLASSPATH.
set -eu
peers=$(CDPATH='' cd "$(dirname "$0")" && pwd)
name=$2 folder=$3 sources=$peers/$2

case $1 in
rust)
  # Not in the reports of tests, for which `cargo xtask test` sets it.
  unset RUSTC_BOOTSTRAP
  messages=$("${CARGO:-cargo}" build --release --locked --message-format=json \
    --manifest-path "$peers/rust/Cargo.toml" --package "peer-$name")
  program=$(printf '%s\n' "$messages" | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)
  printf '%s\n' "${program:?cargo build made no program}"
  ;;
java)
  javac -version >&2 || { echo 'error: apt install default-jdk-headless has javac' >&2; exit 1; }
  javac -cp "$CLASSPATH" -d "$folder" "$sources/Peer.java" >&2
  printf '%s\n' java -Xmx256m -Dorg.slf4j.simpleLogger.defaultLogLevel=off -cp "$folder:$CLASSPATH" Peer
  ;;
python)
  # The system's, if it has the library in this release.
  python=python3
  pinned=$(cat "$sources/requirements.txt")
  if ! "$python" -c 'import importlib.metadata as m, sys; n, v = sys.argv[1].split("=="); exit(m.version(n) != v)' \
    "$pinned" 2>/dev/null; then
    python3 -m venv "$folder" >&2
    python=$folder/bin/python
    "$python" -m pip install -q --disable-pip-version-check -r "$sources/requirements.txt" >&2
  fi
  printf '%s\n' "$python" "$sources/peer.py"
  ;;
node)
  node --version >&2
  cp "$sources/package.json" "$folder"
  npm install --silent --no-audit --no-fund --prefix "$folder" >&2
  printf '%s\n' env "NODE_PATH=$folder/node_modules" node "$sources/peer.js"
  ;;
*)
  exit 1
  ;;
esac
