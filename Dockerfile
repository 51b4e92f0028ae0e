# Two images from one file: `proxy` holds what a proxy needs, `controller` what the operator needs besides.
# They install what is downloaded and built outside, so that building them needs no network and no compiler:
#
#   python -m release.wheel --interpreter python3.11 --out dist
#   for target in proxy controller; do
#     pip download --require-hashes --only-binary :all: --no-deps --python-version 3.11 \
#       --requirement requirements/$target.txt --dest dist/wheels/$target
#     docker build --target $target --tag steelyard-$target .          # or: buildah build ...
#   done
#
# A layer holds the dependencies, another the project: an update that changes no dependency is a small one.
FROM docker.io/library/python:3.11-slim AS python

# A pip of its own, so that none is in what it installs into.
FROM python AS pip
RUN python -m venv /pip

FROM pip AS proxy-dependencies
COPY requirements/proxy.txt dist/wheels/proxy/ /wheels/
RUN python -m venv --without-pip /opt/steelyard \
 && /pip/bin/pip --python /opt/steelyard/bin/python install --quiet --no-cache-dir --no-compile --no-index \
      --find-links /wheels --require-hashes --requirement /wheels/proxy.txt \
 && python -m compileall -q --invalidation-mode unchecked-hash /opt/steelyard

FROM pip AS controller-dependencies
COPY requirements/controller.txt dist/wheels/controller/ /wheels/
RUN python -m venv --without-pip /opt/steelyard \
 && /pip/bin/pip --python /opt/steelyard/bin/python install --quiet --no-cache-dir --no-compile --no-index \
      --find-links /wheels --require-hashes --requirement /wheels/controller.txt \
 && python -m compileall -q --invalidation-mode unchecked-hash /opt/steelyard

FROM pip AS project
COPY dist/*.whl /wheels/
RUN python -m venv --without-pip /opt/steelyard \
 && /pip/bin/pip --python /opt/steelyard/bin/python install --quiet --no-cache-dir --no-compile --no-index \
      --no-deps --prefix /project /wheels/*.whl \
 && python -m compileall -q --invalidation-mode unchecked-hash -s /project -p /opt/steelyard /project

# The user is a number, so that Kubernetes can see that it isn't root. Nothing writes into the image: a read-only root
# does. The base's own pip goes.
FROM python AS runtime
RUN rm -rf /usr/local/lib/python3*/site-packages/* /usr/local/bin/pip* /root/.cache
ENV PATH=/opt/steelyard/bin:/usr/local/bin:/usr/bin:/bin PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
LABEL org.opencontainers.image.licenses="Apache-2.0" org.opencontainers.image.vendor="Steelyard"
WORKDIR /
USER 65532:65532
STOPSIGNAL SIGTERM

FROM runtime AS proxy-base
COPY --from=proxy-dependencies /opt/steelyard /opt/steelyard

FROM proxy-base AS proxy
LABEL org.opencontainers.image.title="steelyard-proxy" \
      org.opencontainers.image.description="Steelyard's data plane: carries traffic to the endpoints it is told of"
COPY --from=project /project /opt/steelyard
ENTRYPOINT ["steelyard"]

FROM runtime AS controller
LABEL org.opencontainers.image.title="steelyard-controller" \
      org.opencontainers.image.description="Steelyard's operator: keeps proxies in step with the cluster"
COPY --from=controller-dependencies /opt/steelyard /opt/steelyard
COPY --from=project /project /opt/steelyard
ENTRYPOINT ["steelyard"]
