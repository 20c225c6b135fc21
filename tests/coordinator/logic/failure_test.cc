#include "coordinator/logic/run/failure.h"

#include <catch2/catch.hpp>
#include <set>

namespace ringmaster::coordinator {
namespace {

TEST_CASE("Failure: every cause has a word of its own and an advice with everything filled in") {
  std::set<std::string> words;
  for (int cause = static_cast<int>(Cause::kWorkerFailed);
       cause <= static_cast<int>(Cause::kNoCheckpoint); ++cause) {
    const Fault fault{static_cast<Cause>(cause), "reason", "w2", 7};
    const v1::Failure failure = MakeFailure(fault, {"j0007", "node-b", "compute", 8, 4});
    INFO(failure.word());
    CHECK_FALSE(failure.word().empty());
    CHECK(words.insert(failure.word()).second);
    CHECK(failure.worker() == "w2");
    CHECK(failure.host() == "node-b");
    CHECK(failure.phase() == "compute");
    CHECK(failure.step() == 8);
    CHECK(failure.advice().find_first_of("{}") == std::string::npos);
  }
  CHECK(words.size() == 13);
}

TEST_CASE("Failure: what a checkpoint has is not computed again") {
  const auto advice = [](Cause cause, uint64_t kept_step) {
    return MakeFailure({cause, "reason", "w2", 7}, {"j0007", "node-b", "compute", 8, kept_step})
        .advice();
  };
  for (const Cause cause :
       {Cause::kWorkerFailed, Cause::kDataset, Cause::kMemory, Cause::kStateDiffers,
        Cause::kProtocolViolation, Cause::kCheckpointDiffers, Cause::kKnownShardDiffers}) {
    CHECK_THAT(advice(cause, 4),
               Catch::Contains("then `ringctl submit --resume j0007` goes on from step 4"));
    CHECK_THAT(advice(cause, 0), Catch::Contains("then submit the job again"));
  }
  // The same steps would end in the same way.
  CHECK(advice(Cause::kNotFinite, 4) ==
        "Take a smaller learning rate, or look at the data of that step, and submit the job with "
        "`--set continue=j0007`, which goes on from a checkpoint of it (up to step 4), or again "
        "from its first step.");
  CHECK_THAT(advice(Cause::kNotFinite, 0), Catch::EndsWith("and submit the job again."));
  const v1::Failure of_script = MakeFailure({Cause::kNotFinite, "reason", "w2", 7},
                                            {"j0007", "node-b", "compute", 8, 4, true});
  CHECK_THAT(of_script.advice(), Catch::EndsWith("and submit the job again."));
}

TEST_CASE("Failure: without a host, a worker or a checkpoint the advice still reads") {
  const v1::Failure failure = MakeFailure({Cause::kDataset, "reason", ""}, {"j0007"});
  CHECK(failure.advice() ==
        "Repair the dataset under the data root of the worker on its host as the reason says, then "
        "submit the job again.");
  CHECK(Called("w2", "") == "worker w2");
  CHECK(At(3, "") == "at step 3");
}

TEST_CASE("Failure: a worker's code is the word of that name, whatever its text says") {
  const google::protobuf::EnumDescriptor& codes = *v1::FailureCode_descriptor();
  std::set<std::string> words;
  for (int i = 0; i < codes.value_count(); ++i) {
    const auto code = static_cast<v1::FailureCode>(codes.value(i)->number());
    if (code == v1::FAILURE_CODE_UNSPECIFIED) continue;
    CHECK(codes.value(i)->name() == "FAILURE_CODE_" + WordOf(CauseOfCode(code)));
    words.insert(WordOf(CauseOfCode(code)));
  }
  CHECK(words == std::set<std::string>{"NOT_FINITE", "DATASET", "DATASET_DIFFERS", "INIT",
                                       "INVALID_JOB", "MEMORY", "STATE_DIFFERS", "SCRIPT"});
}

TEST_CASE("Failure: a worker that does not know, or has a code of its own, has failed") {
  for (const int code : {0, 9, 1000, -1}) {
    CHECK(CauseOfCode(static_cast<v1::FailureCode>(code)) == Cause::kWorkerFailed);
  }
}

}  // namespace
}  // namespace ringmaster::coordinator
