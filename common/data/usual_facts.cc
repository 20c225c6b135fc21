#include "common/data/usual_facts.h"

#include "common/data/format.h"

namespace ringmaster::data {
namespace {

// Of the first file of sample data that has pixels.
StatusOr<FileLayout> UsualLayout(const Format& format) {
  for (const SampleFile& file : format.sample_files(1, 1)) {
    for (const FileKind& kind : format.files) {
      if (kind.holds == Holds::kLabels || !Matches(kind, file.name)) continue;
      return format.layout(kind, {file.name, file.header, file.header.size() + file.record_bytes});
    }
  }
  return Internal("no file of format {} has images", format.name);
}

}  // namespace

StatusOr<v1::DatasetFacts> UsualFacts(const std::string& format_name) {
  RING_ASSIGN_OR_RETURN(const Format* const format, FindFormat(format_name));
  RING_ASSIGN_OR_RETURN(const FileLayout layout, UsualLayout(*format));
  v1::DatasetFacts facts;
  facts.set_format(format->name);
  facts.set_height(layout.height);
  facts.set_width(layout.width);
  facts.set_channels(layout.channels);
  facts.set_classes(format->classes);
  return facts;
}

}  // namespace ringmaster::data
