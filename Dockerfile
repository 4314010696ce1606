# Vizsla's server. docs/container.md says how to build, fill and run it.
#
#     docker build -t vizsla .
#     docker run --rm -v data:/data -v "$PWD:/in:ro" vizsla index /in/corpus.jsonl -o /data/index
#     docker run --rm -v data:/data -p 127.0.0.1:8080:8080 vizsla
ARG PYTHON=3.11.14-slim-bookworm

FROM python:${PYTHON} AS build
WORKDIR /build
COPY pyproject.toml constraints.txt README.md LICENSE NOTICE ./
COPY src src
COPY kernel_build kernel_build
# A wheel in a virtual environment: nothing of the build is left in the image. It has kernels for all kinds of
# processors. The sources get a whole second as their time, since image layers may not keep fractions of it, and Python
# takes its compiled files by the time of their sources.
RUN python -m venv /opt/vizsla \
    && VIZSLA_LEVELS=all /opt/vizsla/bin/pip wheel --no-cache-dir --disable-pip-version-check --no-deps --wheel-dir dist . \
    && /opt/vizsla/bin/pip install --no-cache-dir --disable-pip-version-check -c constraints.txt \
        "$(echo dist/vizsla-*.whl)[server,neural]" \
    && /opt/vizsla/bin/pip uninstall --disable-pip-version-check --yes pip setuptools \
    && find /opt/vizsla/lib -path '*/vizsla/*' -name '*.py' -exec touch -d @1767225600 {} + \
    && /opt/vizsla/bin/python -m compileall -q -f /opt/vizsla/lib

FROM python:${PYTHON}
ENV PATH=/opt/vizsla/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    XDG_CACHE_HOME=/var/cache/vizsla
RUN groupadd --gid 10001 vizsla \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /data --shell /usr/sbin/nologin vizsla \
    && install --directory --owner vizsla --group vizsla /data /var/cache/vizsla
COPY --from=build /opt/vizsla /opt/vizsla
USER 10001:10001
WORKDIR /data
VOLUME ["/data"]
EXPOSE 8080
# Without a proxy, whatever the environment says: the server is in this container.
HEALTHCHECK --interval=30s --timeout=5s --start-period=120s --retries=3 \
    CMD ["python", "-c", "from urllib.request import ProxyHandler, build_opener; build_opener(ProxyHandler({})).open('http://127.0.0.1:8080/healthz', timeout=4)"]
ENTRYPOINT ["vizsla"]
CMD ["serve", "/data/index", "--host", "0.0.0.0", "--port", "8080"]
