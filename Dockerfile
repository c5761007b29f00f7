# Targets: api (no torch), api-gpu, worker-cpu, worker-gpu.
#
# Packages come from locks with hashes, in a layer before the code. Nothing that builds
# is in an image that runs: no pip, no compiler, one copy of the code, a user without
# rights, and nothing to write to but /tmp. `make images` builds and tries two of them.
ARG PYTHON=docker.io/library/python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b
# The index of PyTorch's builds without CUDA, which its install page names; without it
# torch comes from where pip looks, and may bring 2.7 GB of CUDA.
ARG TORCH_INDEX=
# What the labels say: --build-arg VERSION=0.1.0 --build-arg REVISION="$(git rev-parse HEAD)"
ARG VERSION=unreleased
ARG REVISION=unknown

# What builds: pip in an environment of its own, beside the one that it fills.
FROM ${PYTHON} AS builder
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
RUN python -m venv /opt/pip && python -m venv --without-pip /opt/lometab
ENV INTO="/opt/pip/bin/python -m pip --python /opt/lometab/bin/python install"
WORKDIR /build

# The code, as files to be laid over an environment.
FROM builder AS code
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY lometab lometab
COPY app app
COPY worker worker
COPY migrations migrations
COPY examples/wine_quality.csv examples/wine_quality.csv
# With the site that `/help` shows, if `make docs` has built it.
COPY docs docs
RUN PIP_CONSTRAINT=/build/constraints.txt /opt/pip/bin/python -m pip wheel \
        --no-deps --wheel-dir /wheels . && \
    $INTO --no-deps --no-index --prefix /code /wheels/*.whl

FROM builder AS api-packages
COPY requirements.lock ./
RUN $INTO --no-deps --require-hashes --requirement requirements.lock

FROM builder AS worker-packages
COPY requirements-worker.lock constraints.txt ./
RUN $INTO --no-deps --require-hashes --requirement requirements-worker.lock
# Without a hash: each index has builds of its own (docs/decisions/0023-hashes.md).
ARG TORCH_INDEX
RUN version="$(sed -n 's/^torch==//p' constraints.txt)" && \
    $INTO --no-deps ${TORCH_INDEX:+--index-url "${TORCH_INDEX}"} "torch==${version}"

FROM builder AS gpu-packages
COPY requirements-gpu.lock constraints.txt ./
# The default build of torch, with the CUDA packages it asks for: ONNX Runtime uses them.
RUN $INTO --no-deps --require-hashes --requirement requirements-gpu.lock && \
    $INTO --constraint constraints.txt torch

# What runs.
FROM ${PYTHON} AS runtime
LABEL org.opencontainers.image.title="LoMETab" \
      org.opencontainers.image.description="Tabular ensembles over REST" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN rm -rf /usr/local/lib/python3*/site-packages/* /usr/local/lib/python3*/ensurepip \
        /usr/local/bin/pip* /usr/lib/python3*/ensurepip /usr/share/python-wheels && \
    useradd --no-create-home --home-dir /tmp --shell /usr/sbin/nologin --uid 10001 lometab
ENV PATH=/opt/lometab/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp LOMETAB_DATA_DIR=/tmp/lometab
WORKDIR /tmp
USER 10001:10001
STOPSIGNAL SIGTERM

FROM runtime AS api-base
EXPOSE 8000 9090
ENV LOMETAB_HOST=0.0.0.0 LOMETAB_METRICS_HOST=0.0.0.0 LOMETAB_METRICS_PORT=9090
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/readyz', timeout=3)"]
CMD ["lometab", "api", "--processes", "2"]

FROM runtime AS worker-base
EXPOSE 9090
ENV LOMETAB_METRICS_HOST=0.0.0.0 LOMETAB_METRICS_PORT=9090
# Its row in the database: whether its heartbeats come.
HEALTHCHECK --interval=30s --timeout=15s --start-period=60s --retries=3 \
    CMD ["lometab", "worker", "--check"]
CMD ["lometab", "worker"]

# Of each, the labels of its version come last: no layer is built anew because of them.
FROM api-base AS api-gpu
COPY --from=gpu-packages /opt/lometab /opt/lometab
COPY --from=code /code /opt/lometab
ENV LOMETAB_ORT_PROVIDERS=cuda,cpu
ARG VERSION
ARG REVISION
LABEL org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"

FROM worker-base AS worker-cpu
COPY --from=worker-packages /opt/lometab /opt/lometab
COPY --from=code /code /opt/lometab
ENV LOMETAB_WORKER_QUEUE=cpu
ARG VERSION
ARG REVISION
LABEL org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"

FROM worker-base AS worker-gpu
COPY --from=gpu-packages /opt/lometab /opt/lometab
COPY --from=code /code /opt/lometab
ENV LOMETAB_WORKER_QUEUE=gpu
ARG VERSION
ARG REVISION
LABEL org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"

# Last: what `docker build .` makes.
FROM api-base AS api
COPY --from=api-packages /opt/lometab /opt/lometab
COPY --from=code /code /opt/lometab
ARG VERSION
ARG REVISION
LABEL org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
