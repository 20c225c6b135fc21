#include "tests/worker/ring/script_comparison.h"

#include <cmath>

#include "common/exact/quantize.h"
#include "common/exact/units.h"
#include "tests/common/exact/reference_case.h"

namespace ringmaster::ring {
namespace {

// The last V integers of the record. The script knows no scalars, and so no flags of theirs.
std::vector<int64_t> GradientFlags(const ReductionCase& job, const StepResult& result) {
  size_t end = 0;
  for (const auto& block : exact::Record(RecordShapeOf(job.shards)).blocks()) end += block.count;
  std::vector<int64_t> flags(&result.record[end - job.shards], &result.record[end]);
  for (int64_t& flag : flags) {
    const exact::FlagKind kind = exact::DecodeFlag(flag).kind;
    if (flag == exact::EncodeFlag(kind, exact::kRecordTensor)) flag = 0;
  }
  return flags;
}

// What follows from the totals alone, whatever is flagged.
void Conclude(const exact::BlockLayout& layout, exact::Units units, StepResult* result) {
  result->reduced.resize(layout.arena_elements());
  for (size_t b = 0; b < layout.block_count(); ++b) {
    const size_t offset = b * exact::kBlockElements;
    exact::Dequantize({&result->totals[offset], layout.blocks()[b].count}, units.unit_exponent(b),
                      &result->reduced[offset]);
  }
  units.Advance(result->reduced);
  result->exponents.assign(units.exponents().begin(), units.exponents().end());
}

}  // namespace

Status CompareWithScript(const ReductionCase& job, const std::vector<StepResult>& results) {
  exact::Units units(&job.layout, job.precision_bits);
  for (size_t step = 0; step < results.size(); ++step) {
    const std::string dump =
        exact::Dump({&job.layout, &units, std::ilogb(job.gradient_scale), job.gradients[step]});
    StatusOr<std::string> expected = exact::AskReference(dump);
    const std::string where = fmt::format("{}: step {}", job.Describe(), step);
    RING_RETURN_IF_ERROR(Annotate(expected.status(), where));
    StepResult result = results[step];
    if (result.reduced.empty()) Conclude(job.layout, units, &result);
    const std::string found = exact::Text(
        {&job.layout, GradientFlags(job, result), result.totals, result.reduced, result.exponents});
    if (found != *expected) return Internal("{}: the ring and Python's integers differ", where);
    RING_RETURN_IF_ERROR(units.Restore(results[step].exponents));
  }
  return absl::OkStatus();
}

}  // namespace ringmaster::ring
