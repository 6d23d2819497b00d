# Two images: `small`, the default, with the gateway, OpenTelemetry and the driver for PostgreSQL, and `full`, which also has uv,
# Node.js and git to start servers with. Both are a venv on Python's slim base, without compiler, pip or root.
FROM python:3.11-slim-bookworm AS build
WORKDIR /build
COPY . .
RUN python -m venv --without-pip /opt/pointsman \
 && pip --python /opt/pointsman/bin/python install --no-cache-dir --no-compile --no-deps --require-hashes \
    -r requirements.lock -r requirements-otel.lock -r requirements-postgres.lock \
 && pip --python /opt/pointsman/bin/python install --no-cache-dir --no-compile --no-deps . \
 && /opt/pointsman/bin/python -m compileall -q /opt/pointsman/lib

FROM python:3.11-slim-bookworm AS gateway
RUN useradd --uid 1000 --home-dir /var/lib/pointsman --create-home --shell /usr/sbin/nologin pointsman \
 && install -d -o pointsman -g pointsman -m 0700 /etc/pointsman /var/lib/pointsman
COPY --from=build /opt/pointsman /opt/pointsman
ENV PATH=/opt/pointsman/bin:$PATH \
    POINTSMAN_HOST=0.0.0.0 \
    POINTSMAN_PORT=3282 \
    POINTSMAN_CONFIG_DIR=/etc/pointsman \
    POINTSMAN_STATE_DIR=/var/lib/pointsman
USER pointsman
WORKDIR /var/lib/pointsman
VOLUME ["/var/lib/pointsman"]
EXPOSE 3282 3283
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s --retries=3 \
  CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen('http://127.0.0.1:' + os.environ['POINTSMAN_PORT'] + '/health', timeout=4)"]
ENTRYPOINT ["pointsman"]
CMD ["serve"]

# Programs that start servers: `uvx`, `npx`, and git for packages from repositories. They keep what they download on the
# volume, which is the home folder.
FROM python:3.11-slim-bookworm AS starters
COPY requirements-full.lock .
RUN python -m venv --without-pip /opt/starters \
 && pip --python /opt/starters/bin/python install --no-cache-dir --no-compile --require-hashes -r requirements-full.lock

FROM gateway AS full
USER root
RUN apt-get update && apt-get install -y --no-install-recommends git && rm -rf /var/lib/apt/lists/*
COPY --from=starters /opt/starters /opt/starters
ENV PATH=/opt/pointsman/bin:/opt/starters/bin:/usr/local/bin:/usr/bin:/bin
USER pointsman

FROM gateway AS small
ENV POINTSMAN_IMAGE=small
