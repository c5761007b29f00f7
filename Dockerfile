# Targets: api (no torch), worker-cpu, worker-gpu.
FROM python:3.12-slim AS base
ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN useradd --create-home --uid 10001 lometab
WORKDIR /service
COPY pyproject.toml constraints.txt requirements.lock README.md LICENSE ./
COPY lometab lometab
COPY app app
COPY examples/wine_quality.csv examples/wine_quality.csv
COPY worker worker
COPY migrations migrations

FROM base AS api
# What faces strangers is what was tried, byte by byte.
RUN pip install --require-hashes --requirement requirements.lock && \
    pip install --no-deps .
USER 10001
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/readyz', timeout=2)"]
CMD ["lometab", "api", "--host", "0.0.0.0", "--processes", "2"]

FROM base AS worker-cpu
RUN pip install --constraint constraints.txt '.[serve,train]'
USER 10001
ENV LOMETAB_WORKER_QUEUE=cpu
CMD ["lometab", "worker"]

FROM base AS worker-gpu
# Last, and alone: both packages have the same files.
RUN pip install --constraint constraints.txt '.[serve,train]' && \
    pip uninstall --yes onnxruntime && \
    pip install --constraint constraints.txt 'onnxruntime-gpu>=1.22,<2'
USER 10001
ENV LOMETAB_WORKER_QUEUE=gpu
CMD ["lometab", "worker"]
