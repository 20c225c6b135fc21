// A model file, as `ringctl` reads it, and the layers that the coordinator builds of it.
#include "common/check.h"
#include "common/model/build.h"
#include "common/model/print_model.h"
#include "common/model/read_model.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringmaster;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto model = model::ReadModelFile("net.yaml", text, {}, nullptr);
  if (!model.ok()) return 0;
  const auto graph = model::BuildGraph(*model, model::ImagesAndLabels(zoo::kCifar));
  if (!graph.ok()) return 0;
  // What was built can be written down, and is the same again.
  const auto file = model::PrintModelFile(*model, zoo::kCifar);
  RING_CHECK(file.ok(), "it has layers");
  const auto again = model::ReadModelFile("net.yaml", *file, {}, nullptr);
  RING_CHECK(again.ok(), "a second time");
  const auto same = model::BuildGraph(*again, model::ImagesAndLabels(zoo::kCifar));
  RING_CHECK(same.ok() && same->SerializeAsString() == graph->SerializeAsString(), "the same");
  return 0;
}
