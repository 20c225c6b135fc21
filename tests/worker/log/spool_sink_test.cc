#include "worker/log/spool_sink.h"

#include <spdlog/spdlog.h>

#include <catch2/catch.hpp>
#include <string>
#include <thread>

#include "common/log.h"
#include "tests/support/temporary_folder.h"

namespace ringmaster::worker {
namespace {

TEST_CASE("SpoolSink: lines of a job are spooled at once, others are not") {
  const TemporaryFolder folder;
  const std::shared_ptr<Spool> spool = *Spool::Open({folder.path(), kMinSpoolBytes});
  const auto sink = std::make_shared<SpoolSink>(spool);
  spdlog::logger logger("test", sink);
  logger.info("before");
  sink->BeginJob(JobId("j0001"));
  logger.info("loss={}", 0.5);
  logger.warn("hot");
  logger.error("torn");
  sink->EndJob(JobId("j0000"));  // late
  logger.info("still served");
  sink->EndJob(JobId("j0001"));
  logger.info("after");
  const auto lines = spool->Unacknowledged(size_t{1} << 30).lines;
  REQUIRE(lines.size() == 5);
  CHECK(lines[0].text() == "loss=0.5");
  CHECK(lines[0].job_id() == "j0001");
  CHECK(lines[0].level() == "info");
  CHECK(lines[0].unix_ms() > 1'600'000'000'000);
  CHECK(lines[1].level() == "warning");
  CHECK(lines[2].level() == "error");
  CHECK(lines[3].text() == "still served");
  CHECK(lines[4].level() == kEndLevel);
  CHECK(lines[4].job_id() == "j0001");
  CHECK(lines[4].text().empty());
}

TEST_CASE("SpoolSink: a job that begins before the end of the one before ends it") {
  const TemporaryFolder folder;
  const std::shared_ptr<Spool> spool = *Spool::Open({folder.path(), kMinSpoolBytes});
  const auto sink = std::make_shared<SpoolSink>(spool);
  spdlog::logger logger("test", sink);
  sink->BeginJob(JobId("j0001"));
  logger.info("one");
  sink->BeginJob(JobId("j0001"));  // again: nothing
  sink->BeginJob(JobId("j0002"));
  sink->EndJob(JobId("j0001"));
  logger.info("two");
  std::string text;
  for (const v1::SpooledLine& line : spool->Unacknowledged(size_t{1} << 30).lines) {
    text += line.job_id() + " " + line.level() + " " + line.text() + "; ";
  }
  CHECK(text == "j0001 info one; j0001 end ; j0002 info two; ");
}

TEST_CASE("SpoolSink: threads that log together lose no line") {
  const TemporaryFolder folder;
  const std::shared_ptr<Spool> spool = *Spool::Open({folder.path(), uint64_t{16} << 20});
  const auto sink = std::make_shared<SpoolSink>(spool);
  sink->BeginJob(JobId("j0001"));
  spdlog::logger logger("test", sink);
  constexpr int kThreads = 4, kLines = 250;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&logger]() {
        for (int i = 0; i < kLines; ++i) logger.info("line {}", i);
      });
    }
  }
  const auto lines = spool->Unacknowledged(size_t{1} << 30).lines;
  REQUIRE(lines.size() == kThreads * kLines);
  for (size_t i = 0; i < lines.size(); ++i) REQUIRE(lines[i].number() == i + 1);
}

}  // namespace
}  // namespace ringmaster::worker
