// Log lines from a worker's spool to a client, over a coordinator as it really runs.
#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <vector>

#include "common/log.h"
#include "common/rpc/rpc_status.h"
#include "tests/coordinator/cluster.h"
#include "tests/support/fake_worker.h"
#include "worker/log/log_shipper.h"
#include "worker/log/spool.h"

namespace ringmaster::coordinator {
namespace {

using worker::LogShipper;
using worker::Spool;

const std::string kSpool(32, 'a');

v1::LogChunk ChunkOf(const std::string& worker, const std::vector<uint64_t>& numbers,
                     const std::string& job = "j0001") {
  v1::LogChunk chunk;
  chunk.set_worker(worker);
  chunk.set_spool(kSpool);
  for (const uint64_t number : numbers) {
    v1::SpooledLine& line = *chunk.add_lines();
    line.set_number(number);
    line.set_job_id(job);
    line.set_unix_ms(static_cast<int64_t>(number * 10));
    line.set_level("info");
    line.set_text("text");
  }
  return chunk;
}

// Ships chunks of one worker on one stream, as it does while it is attached; the last acknowledged
// number, 0 when the stream broke, or when it may not attach.
uint64_t Ship(Cluster& cluster, const std::vector<v1::LogChunk>& chunks) {
  testing::FakeWorker worker(cluster.NewChannel(), chunks.front().worker());
  if (!worker.Attach().ok()) return 0;
  const auto stub = v1::Fleet::NewStub(cluster.channel());
  Limited context;
  const auto stream = stub->ShipLogs(&context);
  v1::LogAck ack;
  for (v1::LogChunk chunk : chunks) {
    chunk.set_ticket(worker.ticket());
    if (!stream->Write(chunk) || !stream->Read(&ack)) return 0;
  }
  stream->WritesDone();
  return stream->Finish().ok() ? ack.number() : 0;
}

struct Logs {
  std::vector<v1::LogLine> lines;
  grpc::Status end;
  // "a1 +2 a4"
  [[nodiscard]] std::string Text() const {
    std::string text;
    for (const v1::LogLine& line : lines) {
      if (!text.empty()) text += " ";
      if (line.lost() > 0) text += "+" + std::to_string(line.lost()) + " ";
      text += line.worker() + std::to_string(line.number());
    }
    return text;
  }
};

v1::LogsRequest RequestOf(const std::string& job, const std::string& worker = "") {
  v1::LogsRequest request;
  request.set_job_id(job);
  request.set_worker(worker);
  return request;
}

Logs Read(Cluster& cluster, const v1::LogsRequest& request) {
  Limited context;
  const auto reader = cluster.jobs().Logs(&context, request);
  Logs logs;
  for (v1::LogLine line; reader->Read(&line);) logs.lines.push_back(line);
  logs.end = reader->Finish();
  return logs;
}

std::string SubmitOne(Cluster& cluster) { return cluster.Submit(testing::MakeSpec(), "key"); }

TEST_CASE("Logs: what workers shipped comes back by time, with what was lost") {
  Cluster cluster;
  const std::string job = SubmitOne(cluster);
  CHECK(Ship(cluster, {ChunkOf("a", {1, 2}), ChunkOf("a", {2, 5})}) == 5);
  CHECK(Ship(cluster, {ChunkOf("b", {3})}) == 3);
  const Logs all = Read(cluster, RequestOf(job));
  CHECK(all.end.ok());
  CHECK(all.Text() == "a1 a2 +2 b3 +2 a5");
  CHECK(all.lines[0].text() == "text");
  CHECK(Read(cluster, RequestOf(job, "a")).Text() == "a1 a2 +2 a5");
  CHECK(cluster.Get(job).log_lines_lost() == 4);

  cluster.Start();
  CHECK(cluster.Get(job).log_lines_lost() == 4);
  CHECK(Ship(cluster, {ChunkOf("a", {1, 2, 5, 6})}) == 6);
  CHECK(Read(cluster, RequestOf(job)).Text() == "a1 a2 +2 b3 +2 a5 a6");
}

TEST_CASE("Logs: many lines, more than one reading") {
  Cluster cluster;
  const std::string job = SubmitOne(cluster);
  std::vector<uint64_t> numbers(2000);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = i + 1;
  REQUIRE(Ship(cluster, {ChunkOf("a", numbers)}) == 2000);
  REQUIRE(Ship(cluster, {ChunkOf("b", numbers)}) == 2000);
  const Logs logs = Read(cluster, RequestOf(job));
  REQUIRE(logs.lines.size() == 4000);
  for (size_t i = 0; i < logs.lines.size(); ++i) REQUIRE(logs.lines[i].number() == i / 2 + 1);
}

TEST_CASE("Logs: nobody's lines are acknowledged and dropped; bad names are refused") {
  Cluster cluster;
  CHECK(Ship(cluster, {ChunkOf("a", {1, 2})}) == 2);  // no job was submitted
  const std::string job = SubmitOne(cluster);
  CHECK(Ship(cluster, {ChunkOf("a", {3})}) == 3);
  CHECK(Read(cluster, RequestOf(job)).Text() == "a1");
  CHECK(Ship(cluster, {ChunkOf("../a", {4})}) == 0);
}

TEST_CASE("Logs: lines are taken from who has the ticket of the worker's newest session alone") {
  Cluster cluster;
  const std::string job = SubmitOne(cluster);
  testing::FakeWorker a(cluster.NewChannel(), "a"), b(cluster.NewChannel(), "b");
  REQUIRE(a.Attach().ok());
  REQUIRE(b.Attach().ok());
  const auto ship = [&](uint64_t number, const std::string& ticket) {
    const auto stub = v1::Fleet::NewStub(cluster.channel());
    Limited context;
    const auto stream = stub->ShipLogs(&context);
    v1::LogChunk chunk = ChunkOf("a", {number});
    chunk.set_ticket(ticket);
    v1::LogAck ack;
    const bool stored = stream->Write(chunk) && stream->Read(&ack);
    stream->WritesDone();
    return stored ? "" : ErrorReason(stream->Finish());
  };
  for (const std::string& ticket :
       {std::string(), std::string(16, 'x'), std::string("a"), b.ticket(), a.ticket().substr(1)}) {
    CHECK(ship(1, ticket) == "TICKET_NOT_VALID");
  }
  const std::string first = a.ticket();
  CHECK(ship(2, first).empty());
  // A worker that leaves ships its last lines; one that is back has another ticket.
  a.End();
  CHECK(ship(3, first).empty());
  testing::FakeWorker again(cluster.NewChannel(), "a");
  REQUIRE(again.Attach().ok());
  CHECK(ship(4, first) == "TICKET_NOT_VALID");
  CHECK(ship(5, again.ticket()).empty());
  CHECK(Read(cluster, RequestOf(job)).Text() == "+1 a2 a3 +1 a5");
}

TEST_CASE("Logs: unknown jobs and workers are not found") {
  Cluster cluster;
  const grpc::Status no_job = Read(cluster, RequestOf("j0009")).end;
  CHECK(no_job.error_code() == grpc::NOT_FOUND);
  CHECK(ErrorReason(no_job) == "JOB_NOT_FOUND");
  const std::string job = SubmitOne(cluster);
  CHECK(Read(cluster, RequestOf(job)).end.ok());
  const grpc::Status no_worker = Read(cluster, RequestOf(job, "a")).end;
  CHECK(no_worker.error_code() == grpc::NOT_FOUND);
  CHECK(ErrorReason(no_worker) == "WORKER_NOT_FOUND");
  REQUIRE(Ship(cluster, {ChunkOf("a", {1})}) == 1);
  CHECK(Read(cluster, RequestOf(job, "a")).Text() == "a1");
}

// A coordinator whose followers wait so long behind the end of a job.
Flags Following(std::chrono::milliseconds quiet, std::chrono::milliseconds longest) {
  Flags flags;
  flags.options = Patient();
  flags.follow_quiet = quiet;
  flags.follow_longest = longest;
  return flags;
}

TEST_CASE("Logs: a follower gets lines as they come, also behind the end of the job") {
  Cluster cluster(Following(std::chrono::hours(1), std::chrono::hours(1)));
  const std::string job = SubmitOne(cluster);
  REQUIRE(Ship(cluster, {ChunkOf("a", {1})}) == 1);
  v1::LogsRequest request = RequestOf(job);
  request.set_follow(true);
  Limited context;
  const auto reader = cluster.jobs().Logs(&context, request);
  v1::LogLine line;
  REQUIRE(reader->Read(&line));
  CHECK(line.number() == 1);
  REQUIRE(Ship(cluster, {ChunkOf("a", {4})}) == 4);
  REQUIRE(reader->Read(&line));
  CHECK(line.number() == 4);
  CHECK(line.lost() == 2);
  REQUIRE(cluster.Cancel(job).ok());
  REQUIRE(cluster.AwaitState(job, v1::JOB_STATE_CANCELLED).job_id() == job);
  REQUIRE(Ship(cluster, {ChunkOf("b", {1})}) == 1);
  REQUIRE(reader->Read(&line));
  CHECK(line.worker() == "b");
  // Nothing comes of a job that is removed.
  Limited removal;
  v1::RemoveRequest remove;
  remove.set_job_id(job);
  v1::RemoveResponse removed;
  REQUIRE(cluster.jobs().Remove(&removal, remove, &removed).ok());
  CHECK_FALSE(reader->Read(&line));
  CHECK(reader->Finish().ok());
}

v1::LogChunk EndOf(const std::string& worker, uint64_t number) {
  v1::LogChunk chunk = ChunkOf(worker, {number});
  chunk.mutable_lines(0)->set_level(kEndLevel);
  chunk.mutable_lines(0)->clear_text();
  return chunk;
}

TEST_CASE("Logs: a follower waits for who is here until it has said that it logs no more") {
  Cluster cluster(Following(std::chrono::milliseconds(1), std::chrono::hours(1)));
  const std::string job = SubmitOne(cluster);
  testing::FakeWorker a(cluster.NewChannel(), "a");
  REQUIRE(a.Attach().ok());
  const auto ship = [&](v1::LogChunk chunk) {
    const auto stub = v1::Fleet::NewStub(cluster.channel());
    Limited context;
    const auto stream = stub->ShipLogs(&context);
    chunk.set_ticket(a.ticket());
    v1::LogAck ack;
    const bool stored = stream->Write(chunk) && stream->Read(&ack);
    stream->WritesDone();
    return stored && stream->Finish().ok();
  };
  REQUIRE(ship(ChunkOf("a", {1})));
  REQUIRE(Ship(cluster, {EndOf("b", 1)}) == 1);
  REQUIRE(Ship(cluster, {ChunkOf("c", {1})}) == 1);
  std::map<std::string, Limited> contexts;
  std::map<std::string, std::unique_ptr<grpc::ClientReader<v1::LogLine>>> readers;
  for (const char* worker : {"a", "b", "c"}) {
    v1::LogsRequest request = RequestOf(job, worker);
    request.set_follow(true);
    readers[worker] = cluster.jobs().Logs(&contexts[worker], request);
  }
  const auto& reader = readers["a"];
  v1::LogLine line;
  REQUIRE(reader->Read(&line));
  REQUIRE(readers["c"]->Read(&line));
  REQUIRE(cluster.Cancel(job).ok());
  for (const char* worker : {"b", "c"}) {  // one has said so, the other is gone
    CHECK_FALSE(readers[worker]->Read(&line));
    CHECK(readers[worker]->Finish().ok());
  }
  REQUIRE(ship(ChunkOf("a", {2})));
  REQUIRE(reader->Read(&line));
  CHECK(line.number() == 2);
  REQUIRE(ship(EndOf("a", 3)));
  CHECK_FALSE(reader->Read(&line));
  CHECK(reader->Finish().ok());
  CHECK(Read(cluster, RequestOf(job)).Text() == "a1 c1 a2");
}

TEST_CASE("Logs: a follower ends when its job has ended and no line came for a while") {
  using std::chrono::hours, std::chrono::milliseconds;
  for (const Flags& flags :
       {Following(milliseconds(1), hours(1)), Following(hours(1), milliseconds(1))}) {
    Cluster cluster(flags);
    const std::string job = SubmitOne(cluster);
    v1::LogsRequest request = RequestOf(job);
    request.set_follow(true);
    Limited context;
    const auto reader = cluster.jobs().Logs(&context, request);
    v1::LogLine line;
    for (const uint64_t number : {uint64_t{1}, uint64_t{2}}) {  // the job has not ended
      REQUIRE(Ship(cluster, {ChunkOf("a", {number})}) == number);
      REQUIRE(reader->Read(&line));
      CHECK(line.number() == number);
    }
    REQUIRE(cluster.Cancel(job).ok());
    CHECK_FALSE(reader->Read(&line));
    CHECK(reader->Finish().ok());
  }
}

TEST_CASE("Logs: a stop of the coordinator ends followers and streams of lines") {
  Cluster cluster;
  const std::string job = SubmitOne(cluster);
  v1::LogsRequest request = RequestOf(job);
  request.set_follow(true);
  Limited follow, ship;
  const auto reader = cluster.jobs().Logs(&follow, request);
  const auto stub = v1::Fleet::NewStub(cluster.channel());
  const auto stream = stub->ShipLogs(&ship);
  v1::LogAck ack;
  testing::FakeWorker worker(cluster.NewChannel(), "a");
  REQUIRE(worker.Attach().ok());
  v1::LogChunk chunk = ChunkOf("a", {1});
  chunk.set_ticket(worker.ticket());
  REQUIRE(stream->Write(chunk));
  REQUIRE(stream->Read(&ack));
  v1::LogLine line;
  REQUIRE(reader->Read(&line));
  cluster.daemon().Stop();
  CHECK_FALSE(reader->Read(&line));
  CHECK(ErrorReason(reader->Finish()) == "UNAVAILABLE");
  CHECK_FALSE(stream->Read(&ack));
  CHECK(ErrorReason(stream->Finish()) == "UNAVAILABLE");
}

TEST_CASE("Logs: followers that go away leave a coordinator that works") {
  Cluster cluster;
  const std::string job = SubmitOne(cluster);
  v1::LogsRequest request = RequestOf(job);
  request.set_follow(true);
  for (int i = 0; i < 20; ++i) {
    grpc::ClientContext context;
    const auto reader = cluster.jobs().Logs(&context, request);
    context.TryCancel();
    reader->Finish();
  }
  REQUIRE(Ship(cluster, {ChunkOf("a", {1})}) == 1);
  CHECK(Read(cluster, RequestOf(job)).Text() == "a1");
}

// A worker's spool that ships to whatever coordinator there is.
struct Source {
  explicit Source(uint64_t limit) { spool = *Spool::Open({folder.path(), limit}); }
  void Log(const std::string& job, uint64_t lines) {
    for (uint64_t i = 0; i < lines; ++i) {
      v1::SpooledLine line;
      line.set_job_id(job);
      line.set_level("info");
      line.set_text(std::string(200, 'x'));
      spool->Append(std::move(line));
    }
  }
  // Ships everything, as a worker does when it ends.
  bool ShipAll(Cluster& cluster) {
    testing::FakeWorker worker(cluster.NewChannel(), "a");
    (void)worker.Attach();
    LogShipper shipper(
        cluster.channel(), spool.get(),
        {"a", [&] { return worker.ticket(); }, std::chrono::seconds(10), std::chrono::seconds(20)});
    shipper.Start();
    shipper.Stop();
    return spool->drained();
  }
  TemporaryFolder folder;
  std::unique_ptr<Spool> spool;
};

TEST_CASE("Logs: of a flood while the coordinator is down exactly the missing lines are counted") {
  Cluster cluster;
  const std::string job = SubmitOne(cluster);
  Source source(worker::kMinSpoolBytes);
  source.Log(job, 10);
  REQUIRE(source.ShipAll(cluster));
  cluster.daemon().Stop();
  source.Log(job, 2000);
  CHECK_FALSE(source.ShipAll(cluster));
  source.Log(job, 2000);
  cluster.Start();
  REQUIRE(source.ShipAll(cluster));

  const Logs logs = Read(cluster, RequestOf(job));
  uint64_t last = 0, lost = 0;
  for (const v1::LogLine& line : logs.lines) {
    REQUIRE(line.lost() == line.number() - last - 1);
    last = line.number();
    lost += line.lost();
  }
  CHECK(last == 4010);
  CHECK(lost > 3000);
  CHECK(lost + logs.lines.size() == 4010);
  CHECK(cluster.Get(job).log_lines_lost() == lost);
}

TEST_CASE("Logs: without a flood nothing is lost, whatever restarts") {
  Cluster cluster;
  const std::string job = SubmitOne(cluster);
  Source source(uint64_t{16} << 20);
  for (int round = 0; round < 3; ++round) {
    source.Log(job, 500);
    source.spool.reset();  // the worker's process ends without shipping
    source.spool = *Spool::Open({source.folder.path(), uint64_t{16} << 20});
    source.Log(job, 500);
    cluster.Start();
    REQUIRE(source.ShipAll(cluster));
  }
  const Logs logs = Read(cluster, RequestOf(job));
  CHECK(logs.lines.size() == 3000);
  CHECK(cluster.Get(job).log_lines_lost() == 0);
  for (const v1::LogLine& line : logs.lines) REQUIRE(line.lost() == 0);
}

}  // namespace
}  // namespace ringmaster::coordinator
