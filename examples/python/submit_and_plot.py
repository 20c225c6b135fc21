#!/usr/bin/python3
"""Submits a job to a coordinator over its public gRPC service, follows it, and plots its loss."""
import argparse
import os
import pathlib
import sys
import time
import uuid

import stubs

try:
    import grpc

    import job_file
except ImportError as error:
    sys.exit(f"{error}: {stubs.NEEDED}")

import loss_chart

job_pb2, jobs_pb2, jobs_pb2_grpc = stubs.load()

FINAL = (job_pb2.JOB_STATE_SUCCEEDED, job_pb2.JOB_STATE_FAILED, job_pb2.JOB_STATE_CANCELLED)
CALL_SECONDS = 10
RESTART_SECONDS = 30  # so long a coordinator that went away is waited for
# A connection that broke without a word is noticed within 20 s.
KEEPALIVE = [("grpc.keepalive_time_ms", 10_000), ("grpc.keepalive_timeout_ms", 10_000)]


def spec_in_code():
    """What is submitted without a job file: a small network on data/cifar10."""
    return job_pb2.JobSpec(
        name="python-example",
        model=job_pb2.Model(name="mlp", options=[{"name": "hidden", "ints": {"values": [256]}}]),
        data=job_pb2.DataSource(format="cifar10", path="cifar10"),
        batch=64,
        epochs=3,
        seed=1,
        optimizer={"adam": {"learning_rate": 0.001}},
        augment=[job_pb2.Augmentation(random_flip=job_pb2.RandomFlip()),
                 job_pb2.Augmentation(per_image_standardization=job_pb2.PerImageStandardization())])


def submit(jobs, spec):
    """The job's id. The key makes a second try harmless: it finds the same job."""
    request = jobs_pb2.SubmitRequest(spec=spec, idempotency_key=str(uuid.uuid4()))
    return jobs.Submit(request, timeout=CALL_SECONDS, wait_for_ready=True).job_id


def follow(jobs, job_id):
    """Yields every status until the job ended, also across a restart of the coordinator."""
    give_up = time.monotonic() + RESTART_SECONDS
    while True:
        try:
            for status in jobs.Watch(jobs_pb2.WatchRequest(job_id=job_id)):
                give_up = time.monotonic() + RESTART_SECONDS
                yield status
                if status.state in FINAL:
                    return
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.UNAVAILABLE or time.monotonic() > give_up:
                raise
        time.sleep(0.5)


def state_name(status):
    return job_pb2.JobState.Name(status.state).removeprefix("JOB_STATE_")


def metric(status, split, name):
    """One of the model's metrics, e.g. of the test set; None before there is one."""
    values = [each.value for each in status.metrics
              if each.split == split and each.name == name]
    return values[0] if values else None


def watch(jobs, job_id):
    """The last status."""
    for status in follow(jobs, job_id):
        loss = metric(status, job_pb2.SAMPLE_SPLIT_TRAIN, "loss")
        print(f"{state_name(status)}  step {status.step}/{status.total_steps or '?'}"
              + (f"  loss {loss:.4f}" if loss is not None else ""), file=sys.stderr)
    return status


def history(jobs, job_id, name):
    """(step, value) of one metric, of the steps that the coordinator keeps, page by page."""
    request = jobs_pb2.GetMetricsRequest(job_id=job_id, series=jobs_pb2.METRIC_SERIES_STEPS, names=[name])
    points, more = [], True
    while more:
        page = jobs.GetMetrics(request, timeout=CALL_SECONDS, wait_for_ready=True)
        points += [(point.step, value.value) for point in page.points for value in point.values]
        request.after, more = page.next_after, page.more
    return points


def plot(points, title, arguments):
    if not points:
        print("no step was applied: there is nothing to plot", file=sys.stderr)
    elif not arguments.text and loss_chart.save_picture(points, title, arguments.picture):
        print(f"the loss is in {arguments.picture}")
    else:
        print(loss_chart.as_text(points, title))


def channel_to(address, credentials):
    """With TLS where `credentials` is a folder; without it to a coordinator of this host alone."""
    if credentials is None:
        if not address.startswith(("127.", "localhost:", "[::1]:", "unix:")):
            sys.exit(f"{address} is not on this host: --credentials names what `ringctl login` got for it")
        return grpc.insecure_channel(address, KEEPALIVE)
    key, certificate, authorities = (
        (credentials / f"{name}.pem").read_bytes() for name in ("key", "certificate", "authorities"))
    # The name that every coordinator has; its address means nothing.
    return grpc.secure_channel(
        address, grpc.ssl_channel_credentials(authorities, key, certificate),
        [*KEEPALIVE, ("grpc.ssl_target_name_override", "coordinator.ringmaster")])


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job_file", nargs="?", help="default: a job made in code (spec_in_code)")
    parser.add_argument("--coordinator", metavar="HOST:PORT",
                        default=os.environ.get("RINGMASTER_COORDINATOR", "127.0.0.1:7700"))
    parser.add_argument("--credentials", metavar="DIR", type=pathlib.Path,
                        help="of a coordinator of another host: ~/.config/ringmaster/CONTEXT/credentials")
    parser.add_argument("--picture", metavar="FILE", default="loss.png",
                        help="where matplotlib, if installed, draws (default: %(default)s)")
    parser.add_argument("--text", action="store_true", help="draw in the terminal")
    return parser.parse_args()


def main():
    """0: the job succeeded; 1: it did not; 2: it was never accepted."""
    arguments = parse_arguments()
    try:
        spec = (job_file.read(arguments.job_file, job_pb2.JobSpec()) if arguments.job_file
                else spec_in_code())
    except job_file.ERRORS as error:
        print(f"{arguments.job_file}: {error}", file=sys.stderr)
        return 2
    with channel_to(arguments.coordinator, arguments.credentials) as channel:
        jobs = jobs_pb2_grpc.JobsStub(channel)
        try:
            job_id = submit(jobs, spec)
            print(f"job {job_id}")
            status = watch(jobs, job_id)
            points = history(jobs, job_id, "train/loss")
        except grpc.RpcError as error:
            print(f"{arguments.coordinator}: {error.code().name}: {error.details()}", file=sys.stderr)
            return 2
    plot(points, f"{spec.name} ({job_id}): loss", arguments)
    print(f"{state_name(status)} {status.reason}".strip())
    accuracy = metric(status, job_pb2.SAMPLE_SPLIT_TEST, "accuracy")
    if accuracy is not None:
        print(f"test accuracy {accuracy:.4f}")
    return 0 if status.state == job_pb2.JOB_STATE_SUCCEEDED else 1


if __name__ == "__main__":
    sys.exit(main())
