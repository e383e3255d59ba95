# One image for every role: `docker build --target cpu .` or `--target cuda .` (docs/image.md).
# BASE is the index of all platforms, so that the same bytes are built on everywhere; docs/image.md says how to raise it.
# Python's packages are those that requirements.lock names, each file by its hash.
ARG BASE=debian:bookworm-20260824-slim@sha256:88200866dfff7ea7f5cbcb6ec7c8a701889efe6fe859fe64d6990e4b07ea4171

FROM ${BASE} AS base
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates python3 \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/apt /var/log/dpkg.log

# What makes the image and is not in it. (uv leaves a .lock in what it makes, which everybody may write.)
FROM base AS tools
RUN apt-get update && apt-get install --yes --no-install-recommends python3-venv
WORKDIR /source
COPY requirements.lock pyproject.toml ./
ENV PATH=/tools/bin:$PATH UV_LINK_MODE=copy
RUN python3 -m venv /tools \
    && sed -n '/^uv==/,/# via/p' requirements.lock > uv.lock \
    && pip install --quiet --no-cache-dir --require-hashes --requirement uv.lock
RUN --mount=type=cache,target=/root/.cache/uv \
    uv pip install --quiet --python /tools/bin/python --require-hashes --constraints requirements.lock --group image

FROM tools AS cuda-environment
RUN --mount=type=cache,target=/root/.cache/uv \
    uv venv --quiet --python /usr/bin/python3 /opt/distrl \
    && uv pip install --quiet --python /opt/distrl/bin/python --require-hashes --constraints requirements.lock \
      --compile-bytecode --requirement pyproject.toml --extra otel --extra registry \
    && cyclonedx-py environment --pyproject pyproject.toml --output-file /opt/distrl/sbom.cdx.json /opt/distrl \
    && rm /opt/distrl/.lock

# PyPI has PyTorch only with CUDA, whose libraries it is linked to. Those that the dynamic linker asks for stay, since
# nothing is imported without them; kernels, compilers and what is opened on a GPU only go: 2.6 GB of 6.4.
FROM tools AS cpu-environment
RUN --mount=type=cache,target=/root/.cache/uv \
    printf 'cuda-bindings\ncuda-pathfinder\ntriton\n' > excludes.txt \
    && uv venv --quiet --python /usr/bin/python3 /opt/distrl \
    && uv pip install --quiet --python /opt/distrl/bin/python --require-hashes --constraints requirements.lock \
      --compile-bytecode --requirement pyproject.toml --extra otel --extra registry --excludes excludes.txt \
    && cd /opt/distrl/lib/python3*/site-packages \
    && ldd torch/lib/libtorch_python.so torch/lib/libtorch_global_deps.so \
      | awk '$3 ~ "/nvidia/" {print $3}' | xargs realpath | sort -u > /tmp/linked \
    && find "$PWD/nvidia" -type f | sort | comm -23 - /tmp/linked | xargs --delimiter='\n' rm \
    && cyclonedx-py environment --pyproject /source/pyproject.toml --output-file /opt/distrl/sbom.cdx.json /opt/distrl \
    && rm /opt/distrl/.lock

FROM tools AS project
COPY README.md LICENSE ./
COPY infra infra
COPY schemas schemas
COPY pipeline pipeline
RUN --mount=type=cache,target=/root/.cache/uv \
    uv build --quiet --wheel --python /usr/bin/python3 --build-constraints requirements.lock --require-hashes \
    && uv venv --quiet --python /usr/bin/python3 /opt/distrl \
    && uv pip install --quiet --python /opt/distrl/bin/python --no-deps --compile-bytecode --prefix /project dist/*.whl \
    && rm --force /project/.lock

# The last layers of both: who it runs as, and what it runs.
FROM base AS runtime
RUN groupadd --gid 65532 distrl \
    && useradd --uid 65532 --gid distrl --home-dir /var/lib/distrl --create-home --shell /usr/sbin/nologin distrl
# Nothing but /var/lib/distrl and /tmp is written, and no user of the image owns the rest.
ENV PATH=/opt/distrl/bin:$PATH HOME=/var/lib/distrl MPLCONFIGDIR=/tmp/matplotlib PYTHONUNBUFFERED=1
WORKDIR /var/lib/distrl
USER 65532:65532
ENTRYPOINT ["distrl"]
CMD ["--help"]

FROM runtime AS cuda
COPY --from=cuda-environment /opt/distrl /opt/distrl
COPY --from=project /project /opt/distrl

FROM runtime AS cpu
COPY --from=cpu-environment /opt/distrl /opt/distrl
COPY --from=project /project /opt/distrl
