// The script in a real bash, which asks a real ringctl.
#include <catch2/catch.hpp>
#include <cstdio>
#include <string>

#include "cli/show/names.h"
#include "tests/cli/fake_jobs.h"

namespace ringmaster::cli {
namespace {

// What bash would offer behind `words`, the last of which is begun, as one line.
std::string Offered(const std::string& coordinator, const std::string& words) {
  const std::string script = fmt::format(
      "export RINGMASTER_COORDINATOR={}; cd {}; source <({} completion bash); "
      "COMP_WORDS=({} {}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _ringctl; "
      "echo \"${{COMPREPLY[*]}}\"",
      coordinator, RINGMASTER_GOLDEN, RINGMASTER_RINGCTL, RINGMASTER_RINGCTL, words);
  std::FILE* const bash = popen(fmt::format("bash -c '{}'", script).c_str(), "r");
  if (bash == nullptr) return "no bash";
  char line[4096] = "";
  if (std::fgets(line, sizeof(line), bash) == nullptr) line[0] = '\0';
  pclose(bash);
  std::string text = line;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

TEST_CASE("Completion: bash offers commands, options, values, jobs, workers and files") {
  const FakeJobs jobs;
  const std::string at = jobs.address();
  CHECK(Offered(at, "wa") == "watch wait");
  CHECK(Offered(at, "checkpoint \"\"") == "ls get verify");
  CHECK(Offered(at, "logs --f") == "--follow");
  CHECK(Offered(at, "ps --output \"=\" j") == "json");
  CHECK(Offered(at, "status j0007 --output \"=\"") == "table json");
  CHECK(Offered(at, "drain \"\"") == "a b");
  CHECK(Offered(at, "submit --resume j000") == "j0007 j0006 j0005 j0004 j0003 j0002 j0001");
  CHECK(Offered(at, "cancel j000") == "j0007 j0006 j0005 j0004 j0003 j0002 j0001");
  CHECK(Offered(at, "logs j0004 --worker \"\"") == "a b");
  CHECK(Offered(at, "submit watch_t") == "watch_terminal.txt");
  CHECK(Offered(at, "submit job.yaml --set optimizer.sgd.") ==
        "optimizer.sgd.learning_rate= optimizer.sgd.momentum= optimizer.sgd.nesterov=");
  CHECK(Offered(at, "submit job.yaml --set reduction \"=\"") == "exact float32");
  CHECK(Offered(at, "run --set reduction \"=\" e") == "exact");
  CHECK(Offered(at, "run --set model.name=ml") == "model.name=mlp");
  CHECK(Offered(at, "keys work") ==
        "workers workers.min workers.max workers.mix workers.classes workers.classes.NAME");
  CHECK(Offered(at, "run --set batch \"=\"").empty());
  CHECK(Offered("127.0.0.1:1", "status \"\"").empty());
}

}  // namespace
}  // namespace ringmaster::cli
