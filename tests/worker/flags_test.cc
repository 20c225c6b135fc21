#include "worker/flags.h"

#include <catch2/catch.hpp>
#include <initializer_list>

namespace ringmaster::worker {
namespace {

ParsedFlags Parse(std::initializer_list<std::string> arguments) {
  std::vector<std::string> words = {"ringworker", "--data-root", "/data", "--state-dir", "/state"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  return ParseFlags(static_cast<int>(argv.size()), argv.data());
}

TEST_CASE("Flags: amounts of memory have binary units") {
  CHECK(Parse({"--memory-per-core", "8GiB"}).flags.memory_per_core == uint64_t{8} << 30);
  CHECK(Parse({"--memory-per-core", "512MiB"}).flags.memory_per_core == uint64_t{512} << 20);
  CHECK(Parse({"--memory-per-core", "4096"}).flags.memory_per_core == 4096);
  for (const char* bad : {"8GB", "GiB", "-1", "0", "1.5GiB", "99999999999TiB", "8 GiB"}) {
    INFO(bad);
    CHECK(Parse({"--memory-per-core", bad}).exit_code == 2);
  }
}

TEST_CASE("Flags: threads and memory for samples are the host's where they are not given") {
  CHECK_FALSE(Parse({}).flags.input_threads);
  CHECK(Parse({}).flags.input_memory == 0);
  CHECK(Parse({"--input-threads", "0"}).flags.input_threads == 0U);
  CHECK(Parse({"--input-threads", "12"}).flags.input_threads == 12U);
  CHECK(Parse({"--input-memory", "4GiB"}).flags.input_memory == uint64_t{4} << 30);
  for (const char* bad : {"-1", "1025", "many", "1.5"}) {
    INFO(bad);
    CHECK(Parse({"--input-threads", bad}).exit_code == 2);
  }
  CHECK(Parse({"--input-memory", "0"}).exit_code == 2);
}

TEST_CASE("Flags: what may be fetched from addresses") {
  const ParsedFlags none = Parse({});
  CHECK_FALSE(none.flags.urls.allow_http);
  CHECK_FALSE(none.flags.urls.allow_private);
  CHECK(none.flags.urls.s3_endpoint.empty());
  const ParsedFlags all = Parse({"--data-http", "--data-private-addresses", "--s3-endpoint",
                                 "http://minio:9000", "--s3-region", "eu-west-1"});
  REQUIRE_FALSE(all.exit);
  CHECK(all.flags.urls.allow_http);
  CHECK(all.flags.urls.allow_private);
  CHECK(all.flags.urls.s3_endpoint == "http://minio:9000");
  CHECK(all.flags.urls.s3_region == "eu-west-1");
  CHECK(Parse({"--s3-endpoint", "http://minio:9000"}).exit_code == 2);
  CHECK(Parse({"--s3-endpoint", "minio:9000"}).exit_code == 2);
  CHECK(Parse({"--s3-region", "EU"}).exit_code == 2);
}

TEST_CASE("Flags: --version is no error") {
  CHECK(Parse({"--version"}).exit);
  CHECK(Parse({"--version"}).exit_code == 0);
}

TEST_CASE("Flags: a CPU list has single CPUs and ranges, each CPU once") {
  CHECK(*ParseCpuList("3") == std::vector<int>{3});
  CHECK(*ParseCpuList("0,2-4") == std::vector<int>{0, 2, 3, 4});
  for (const char* bad : {"", "a", "1-", "3-1", "1,1", "0-2,1", "-1", "1,,2", "99999999"}) {
    INFO(bad);
    CHECK_FALSE(ParseCpuList(bad).ok());
  }
}

TEST_CASE("Flags: the usual ones are understood") {
  const ParsedFlags parsed =
      Parse({"--coordinator", "10.0.0.1:7700", "--listen", "127.0.0.1:0", "--cores", "2",
             "--threads-per-core", "3", "--memory-per-core", "1GiB", "--name", "w1", "--cpus",
             "0-5", "--log-spool", "64KiB", "--drain", "0"});
  REQUIRE_FALSE(parsed.exit);
  CHECK(parsed.flags.coordinator.ToString() == "10.0.0.1:7700");
  CHECK(parsed.flags.advertise == "127.0.0.1");
  CHECK(parsed.flags.cores == 2);
  CHECK(parsed.flags.threads_per_core == 3);
  CHECK(parsed.flags.memory_per_core == uint64_t{1} << 30);
  CHECK(parsed.flags.cpus.size() == 6);
  CHECK(parsed.flags.name == "w1");
  CHECK(parsed.flags.log_spool_bytes == 64 << 10);
  CHECK(parsed.flags.drain == std::chrono::seconds(0));
  CHECK(Parse({}).flags.log_spool_bytes == 64 << 20);
  CHECK(Parse({}).flags.drain == std::chrono::seconds(30));
  CHECK(Parse({}).flags.memory_per_core == 0);  // the device's
}

TEST_CASE("Flags: a device is a kind, or one GPU by its index") {
  CHECK(Parse({}).flags.device.kind == "auto");
  CHECK_FALSE(Parse({}).flags.device.index);
  CHECK(Parse({"--device", "cpu"}).flags.device.kind == "cpu");
  const DeviceChoice third = Parse({"--device", "cuda:2"}).flags.device;
  CHECK(third.kind == "cuda");
  CHECK(third.index == 2U);
  CHECK(ParseDevice("cuda")->kind == "cuda");
  CHECK_FALSE(ParseDevice("cuda")->index);
  CHECK(ParseDevice("pjrt")->options.plugin.empty());
  CHECK(ParseDevice("pjrt:/opt/a:b/plugin.so")->options.plugin == "/opt/a:b/plugin.so");
  for (const char* bad :
       {"", "gpu", "CUDA", "cuda:", "cuda:-1", "cuda:1,2", "cpu:0", "auto:0", "pjrt:", "tpu"}) {
    INFO(bad);
    CHECK_FALSE(ParseDevice(bad).ok());
    CHECK(Parse({"--device", bad}).exit_code == 2);
  }
}

TEST_CASE("Flags: how long a device may take, and how much of it is ours") {
  const BackendOptions usual = Parse({}).flags.device.options;
  CHECK(usual.start_limit == std::chrono::minutes(2));
  CHECK(usual.compile_limit == std::chrono::minutes(10));
  CHECK(usual.run_limit == std::chrono::minutes(2));
  CHECK(usual.memory_fraction == 0);
  const BackendOptions said =
      Parse({"--device", "pjrt:p.so", "--start-limit", "90s", "--compile-limit", "30m",
             "--run-limit", "5s", "--memory-fraction", "0.5"})
          .flags.device.options;
  CHECK(said.plugin == "p.so");
  CHECK(said.start_limit == std::chrono::seconds(90));
  CHECK(said.compile_limit == std::chrono::minutes(30));
  CHECK(said.run_limit == std::chrono::seconds(5));
  CHECK(said.memory_fraction == 0.5);
  CHECK(Parse({"--memory-fraction", "1.5"}).exit_code == 2);
  CHECK(Parse({"--run-limit", "0"}).exit_code == 2);
  CHECK(Parse({"--start-limit", "2"}).exit_code == 2);
}

TEST_CASE("Flags: what cannot work is a usage error before anything starts") {
  CHECK(Parse({"--listen", "0.0.0.0:0"}).exit_code == 2);  // advertise what?
  CHECK(Parse({"--join", "rm1/nonsense"}).exit_code == 2);
  CHECK(Parse({"--cores", "2", "--cpus", "0"}).exit_code == 2);  // too few CPUs
  CHECK(Parse({"--cores", "0"}).exit_code == 2);
  CHECK(Parse({"--name", "a/b"}).exit_code == 2);
  CHECK(Parse({"--coordinator", "nowhere"}).exit_code == 2);
  CHECK(Parse({"--log-spool", "1KiB"}).exit_code == 2);
  CHECK(Parse({"--drain", "-1s"}).exit_code == 2);
  CHECK(Parse({"--drain", "30"}).exit_code == 2);  // of what?
  CHECK(Parse({"--nonsense"}).exit_code == 2);
  CHECK_FALSE(Parse({"--listen", "0.0.0.0:0", "--advertise", "10.0.0.2"}).exit);
}

}  // namespace
}  // namespace ringmaster::worker
