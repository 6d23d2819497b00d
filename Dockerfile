# A small image of the gateway: a venv on Python's slim base, without compiler, pip or root.
FROM python:3.11-slim AS build
WORKDIR /build
COPY . .
RUN python -m venv --without-pip /opt/pointsman \
 && pip --python /opt/pointsman/bin/python install --no-cache-dir --no-compile --no-deps --require-hashes -r requirements.lock \
 && pip --python /opt/pointsman/bin/python install --no-cache-dir --no-compile --no-deps . \
 && /opt/pointsman/bin/python -m compileall -q /opt/pointsman/lib

FROM python:3.11-slim
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
