#include "worker/log/log_shipper.h"

#include <grpcpp/grpcpp.h>
#include <spdlog/spdlog.h>

#include <catch2/catch.hpp>
#include <deque>
#include <vector>

#include "tests/support/served.h"
#include "tests/support/temporary_folder.h"

namespace ringmaster::worker {
namespace {

enum class Answer : uint8_t { kAcknowledge, kBreak, kStoreAndBreak, kStaySilent };

// Stores lines as a coordinator does; its next answers can be told.
class LineFleet : public v1::Fleet::Service {
 public:
  void Next(std::vector<Answer> answers) {
    MutexLock lock(mu_);
    answers_.assign(answers.begin(), answers.end());
  }

  // Waits until so many lines came; false after 20 s.
  bool Await(size_t lines) {
    MutexLock lock(mu_);
    return changed_.WaitUntil(
        mu_, std::chrono::steady_clock::now() + std::chrono::seconds(20),
        [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return lines_.size() >= lines; });
  }

  // Without those that came twice.
  std::vector<uint64_t> Numbers() {
    MutexLock lock(mu_);
    return lines_;
  }
  size_t repeated() {
    MutexLock lock(mu_);
    return repeated_;
  }
  size_t streams() {
    MutexLock lock(mu_);
    return streams_;
  }
  std::string worker() {
    MutexLock lock(mu_);
    return worker_;
  }
  size_t largest_chunk() {
    MutexLock lock(mu_);
    return largest_chunk_;
  }
  const std::shared_ptr<grpc::Channel>& channel() const { return served_.channel(); }

 private:
  Answer Take(const v1::LogChunk& chunk) {
    MutexLock lock(mu_);
    Answer answer = Answer::kAcknowledge;
    if (!answers_.empty()) {
      answer = answers_.front();
      answers_.pop_front();
    }
    largest_chunk_ = std::max(largest_chunk_, chunk.ByteSizeLong());
    worker_ = chunk.worker();
    if (answer == Answer::kBreak) return answer;
    for (const v1::SpooledLine& line : chunk.lines()) {
      if (!lines_.empty() && line.number() <= lines_.back()) {
        ++repeated_;
      } else {
        lines_.push_back(line.number());
      }
    }
    changed_.NotifyAll();
    return answer;
  }

  grpc::Status ShipLogs(grpc::ServerContext* context,
                        grpc::ServerReaderWriter<v1::LogAck, v1::LogChunk>* stream) override {
    {
      MutexLock lock(mu_);
      ++streams_;
    }
    v1::LogChunk chunk;
    while (stream->Read(&chunk)) {
      const Answer answer = Take(chunk);
      if (answer == Answer::kStaySilent) continue;
      if (answer != Answer::kAcknowledge) return {grpc::UNAVAILABLE, "broken on request"};
      v1::LogAck ack;
      ack.set_number(chunk.lines(chunk.lines_size() - 1).number());
      if (!stream->Write(ack)) break;
    }
    (void)context;
    return grpc::Status::OK;
  }

  Mutex mu_;
  Condition changed_;
  std::deque<Answer> answers_ ABSL_GUARDED_BY(mu_);
  std::vector<uint64_t> lines_ ABSL_GUARDED_BY(mu_);
  size_t repeated_ ABSL_GUARDED_BY(mu_) = 0;
  size_t streams_ ABSL_GUARDED_BY(mu_) = 0;
  size_t largest_chunk_ ABSL_GUARDED_BY(mu_) = 0;
  std::string worker_ ABSL_GUARDED_BY(mu_);
  testing::Served served_{this};  // last: its calls use everything above
};

struct Fixture {
  explicit Fixture(LogShipper::Options options = {
                       "a", {}, std::chrono::seconds(10), std::chrono::seconds(20)}) {
    options.ticket = [] { return std::string("the ticket of it"); };
    spdlog::set_level(spdlog::level::off);
    spool = *Spool::Open({folder.path(), uint64_t{16} << 20});
    shipper = std::make_unique<LogShipper>(fleet.channel(), spool.get(), options);
  }
  void Append(int lines, size_t bytes = 10) {
    for (int i = 0; i < lines; ++i) {
      v1::SpooledLine line;
      line.set_job_id("j0001");
      line.set_level("info");
      line.set_text(std::string(bytes, 'x'));
      spool->Append(std::move(line));
    }
  }
  // Every line up to `last`, each once, in order.
  void CheckComplete(size_t last) {
    const std::vector<uint64_t> numbers = fleet.Numbers();
    REQUIRE(numbers.size() == last);
    CHECK(numbers.front() == 1);
    CHECK(numbers.back() == last);
  }

  TemporaryFolder folder;
  LineFleet fleet;
  std::unique_ptr<Spool> spool;
  std::unique_ptr<LogShipper> shipper;
};

TEST_CASE("LogShipper: lines travel as they come, on one stream") {
  Fixture f;
  f.Append(3);
  f.shipper->Start();
  REQUIRE(f.fleet.Await(3));
  f.Append(1);
  REQUIRE(f.fleet.Await(4));
  f.shipper->Stop();
  f.CheckComplete(4);
  CHECK(f.spool->drained());
  CHECK(f.fleet.streams() == 1);
  CHECK(f.fleet.worker() == "a");
}

TEST_CASE("LogShipper: what was not acknowledged comes again") {
  Fixture f;
  f.fleet.Next({Answer::kAcknowledge, Answer::kBreak, Answer::kStoreAndBreak, Answer::kBreak});
  f.Append(200, 4000);
  f.shipper->Start();
  REQUIRE(f.fleet.Await(200));
  f.shipper->Stop();
  f.CheckComplete(200);
  CHECK(f.fleet.repeated() > 0);
  CHECK(f.fleet.streams() == 4);
  CHECK(f.spool->drained());
}

TEST_CASE("LogShipper: a coordinator that does not answer is given up, then tried again") {
  Fixture f({"a", {}, std::chrono::milliseconds(200)});
  f.fleet.Next({Answer::kStaySilent});
  f.Append(2);
  f.shipper->Start();
  REQUIRE(f.fleet.Await(2));
  f.Append(1);
  REQUIRE(f.fleet.Await(3));
  f.shipper->Stop();
  f.CheckComplete(3);
  CHECK(f.fleet.repeated() >= 2);
}

TEST_CASE("LogShipper: chunks are bounded") {
  Fixture f;
  f.Append(300, 8000);
  f.shipper->Start();
  REQUIRE(f.fleet.Await(300));
  f.shipper->Stop();
  f.CheckComplete(300);
  CHECK(f.fleet.largest_chunk() <= (256 << 10) + 9000);
}

TEST_CASE("LogShipper: a stop ships the rest first") {
  Fixture f;
  f.shipper->Start();
  f.Append(500, 4000);
  f.shipper->Stop();
  f.CheckComplete(500);
  CHECK(f.spool->drained());
}

TEST_CASE("LogShipper: a stop does not wait for a coordinator that is away or silent") {
  Fixture f({"a", {}, std::chrono::hours(1), std::chrono::milliseconds(1)});
  f.fleet.Next({Answer::kStaySilent});
  f.Append(1);
  f.shipper->Start();
  REQUIRE(f.fleet.Await(1));
  f.shipper->Stop();  // hangs for an hour if the stream is not broken off
  CHECK_FALSE(f.spool->drained());

  LogShipper away(grpc::CreateChannel("127.0.0.1:1", grpc::InsecureChannelCredentials()),
                  f.spool.get(),
                  {"a", [] { return std::string("the ticket of it"); }, std::chrono::hours(1),
                   std::chrono::hours(1)});
  away.Start();
  away.Stop();
  CHECK_FALSE(f.spool->drained());
}

}  // namespace
}  // namespace ringmaster::worker
