# The operators' command line, with the schema and the recovery of writer and session. Built from the project's root:
#   docker build --file services/admin/qimctl.Dockerfile --tag qimctl:0.1.0 .
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS wheels
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
RUN python -m venv --without-pip /opt/build
COPY build-requirements.lock ./
RUN pip --python /opt/build/bin/python install --require-hashes --no-deps --only-binary :all: -r build-requirements.lock
COPY protos protos/
COPY libs/common common/
RUN pip --python /opt/build/bin/python wheel --no-index --no-deps --no-build-isolation -w /wheels ./protos ./common
COPY libs/client client/
COPY services/admin admin/
COPY services/writer writer/
COPY services/session session/
RUN pip --python /opt/build/bin/python wheel --no-index --no-deps --no-build-isolation -w /wheels ./client ./admin ./writer ./session

FROM ${BASE} AS installed
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv --without-pip /opt/qim
COPY services/admin/qimctl-requirements.lock requirements.lock
RUN pip --python /opt/qim/bin/python install --require-hashes --no-deps --only-binary :all: -r requirements.lock
COPY --from=wheels /wheels /wheels
RUN pip --python /opt/qim/bin/python install --no-index --no-deps /wheels/*.whl

FROM ${BASE}
LABEL org.opencontainers.image.title="qimctl" \
      org.opencontainers.image.description="qim: the operators' command line" \
      org.opencontainers.image.version="0.1.0"
COPY --from=installed /opt/qim /opt/qim
ENV PATH=/opt/qim/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
ENTRYPOINT ["qimctl"]
