// What Pillow and torchvision are held against. Each line of stdin is a case:
//
//     render FILE CHANNELS SEED SAMPLE AUGMENT      what the geometric entries make of an image
//     shown FILE CHANNELS SEED SAMPLE AUGMENT       likewise, turned as EXIF says
//     values FILE HEIGHT WIDTH CHANNELS SEED SAMPLE AUGMENT   what all others make of raw pixels
//     draws HEIGHT WIDTH SEED SAMPLES AUGMENT       what the only entry draws for so many samples
//     place HEIGHT WIDTH SEED SAMPLES AUGMENT       where they cut, of so many samples
//     time FILE CHANNELS SEED SAMPLES AUGMENT       milliseconds of CPU for each of so many samples
//
// AUGMENT is an `augment` list of the job file, as YAML on one line. Of `render` the height, the
// width and the bytes follow on stdout, or an error; of `values` a line and H,W,C float32; of
// `place` top, left, height, width of the source for each sample. `draws` gives of color_jitter
// four factors and the order, of random_erasing the window, of mixup and cutmix, for which samples
// are steps, the share.
#include <cstdio>
#include <ctime>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "common/files.h"
#include "common/graph/augment/augment.h"
#include "common/graph/augment/color_jitter.h"
#include "common/graph/augment/geometry.h"
#include "common/graph/augment/mix.h"
#include "common/image/orientation.h"
#include "common/image/placement.h"
#include "common/job/image_rules.h"
#include "common/job/job_file.h"

namespace ringmaster {
namespace {

StatusOr<std::vector<v1::Augmentation>> ListOf(const std::string& text) {
  v1::JobSpec spec;
  RING_RETURN_IF_ERROR(job::ReadYaml("augment", "{augment: " + text + "}", &spec));
  job::ResolveAugment(&spec);
  RING_RETURN_IF_ERROR(job::CheckAugment(spec, spec));
  return std::vector<v1::Augmentation>(spec.augment().begin(), spec.augment().end());
}

StatusOr<graph::Geometry> GeometryOf(const std::string& text, uint64_t seed) {
  RING_ASSIGN_OR_RETURN(const std::vector<v1::Augmentation> list, ListOf(text));
  return graph::Geometry(list, seed);
}

std::string Rest(std::istringstream* line) {
  std::string rest;
  std::getline(*line, rest);
  return rest;
}

Status Render(std::istringstream* line, image::Exif exif) {
  std::string name;
  uint32_t channels = 0;
  uint64_t seed = 0, sample = 0;
  *line >> name >> channels >> seed >> sample;
  RING_ASSIGN_OR_RETURN(const graph::Geometry geometry, GeometryOf(Rest(line), seed));
  RING_ASSIGN_OR_RETURN(const std::string text, ReadNamedFile("image", name));
  const std::span<const uint8_t> file(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  RING_ASSIGN_OR_RETURN(const image::Header header, image::ReadHeader(file, exif));
  const image::Placement placement = geometry.Place(0, sample, image::ShownSize(header));
  const auto [height, width] = placement.kept.size;
  std::vector<uint8_t> pixels(size_t{height} * width * channels);
  RING_RETURN_IF_ERROR(image::Render(file, header, placement, channels, pixels));
  std::printf("%u %u\n", height, width);
  std::fwrite(pixels.data(), 1, pixels.size(), stdout);
  return absl::OkStatus();
}

// Of this thread: a wait for the CPU is none of it.
double CpuMilliseconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

// The images of samples 0 to SAMPLES - 1, of one file that is in memory.
Status Time(std::istringstream* line) {
  std::string name;
  uint32_t channels = 0;
  uint64_t seed = 0, samples = 0;
  *line >> name >> channels >> seed >> samples;
  RING_ASSIGN_OR_RETURN(const graph::Geometry geometry, GeometryOf(Rest(line), seed));
  RING_ASSIGN_OR_RETURN(const std::string text, ReadNamedFile("image", name));
  const std::span<const uint8_t> file(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  std::vector<uint8_t> pixels;
  const double begin = CpuMilliseconds();
  for (uint64_t sample = 0; sample < samples; ++sample) {
    RING_ASSIGN_OR_RETURN(const image::Header header, image::ReadHeader(file));
    const image::Placement placement = geometry.Place(0, sample, header.size);
    pixels.resize(size_t{placement.kept.size.height} * placement.kept.size.width * channels);
    RING_RETURN_IF_ERROR(image::Render(file, header, placement, channels, pixels));
  }
  std::printf("%.6f\n", (CpuMilliseconds() - begin) / static_cast<double>(samples));
  return absl::OkStatus();
}

Status Place(std::istringstream* line) {
  image::Size size;
  uint64_t seed = 0, samples = 0;
  *line >> size.height >> size.width >> seed >> samples;
  RING_ASSIGN_OR_RETURN(const graph::Geometry geometry, GeometryOf(Rest(line), seed));
  for (uint64_t sample = 0; sample < samples; ++sample) {
    const image::Window& window = geometry.Place(0, sample, size).source;
    std::printf("%u %u %u %u\n", window.top, window.left, window.size.height, window.size.width);
  }
  return absl::OkStatus();
}

Status Values(std::istringstream* line) {
  std::string name;
  graph::ImageShape shape;
  uint64_t seed = 0, sample = 0;
  *line >> name >> shape.height >> shape.width >> shape.channels >> seed >> sample;
  RING_ASSIGN_OR_RETURN(const std::vector<v1::Augmentation> list, ListOf(Rest(line)));
  RING_ASSIGN_OR_RETURN(const std::string text, ReadNamedFile("pixels", name));
  graph::ImageScratch scratch;
  std::vector<float> out(shape.elements());
  graph::Augmenter(list, shape, shape, seed)
      .Apply(graph::Use::kTraining, 0, sample,
             {reinterpret_cast<const uint8_t*>(text.data()), text.size()}, &scratch, out);
  std::printf("%zu\n", out.size());
  std::fwrite(out.data(), sizeof(float), out.size(), stdout);
  return absl::OkStatus();
}

void PrintDraw(const v1::Augmentation& op, const graph::Mixer* mixer, const image::Size& size,
               uint64_t seed, uint64_t sample) {
  const auto stream = [&](PhiloxStream::Purpose purpose) {
    return PhiloxStream(seed, purpose, 0, sample, "0");
  };
  if (mixer != nullptr) {
    std::printf("%.9g\n", double{mixer->Draw(sample, 0).share});
  } else if (op.has_color_jitter()) {
    const auto draw =
        graph::DrawJitter(op.color_jitter(), stream(PhiloxStream::Purpose::kColorJitter));
    std::printf("%.17g %.17g %.17g %.17g", draw.brightness, draw.contrast, draw.saturation,
                draw.hue);
    for (const graph::Jitter jitter : draw.order) std::printf(" %d", static_cast<int>(jitter));
    std::printf("\n");
  } else {
    const auto window = graph::ErasedWindow(op.random_erasing(), size,
                                            stream(PhiloxStream::Purpose::kRandomErasing))
                            .value_or(image::Window{});
    std::printf("%u %u %u %u\n", window.top, window.left, window.size.height, window.size.width);
  }
}

Status Draws(std::istringstream* line) {
  image::Size size;
  uint64_t seed = 0, samples = 0;
  *line >> size.height >> size.width >> seed >> samples;
  RING_ASSIGN_OR_RETURN(const std::vector<v1::Augmentation> list, ListOf(Rest(line)));
  const auto mixer = graph::Mixer::Of(list, {size.height, size.width, 3}, seed);
  for (uint64_t sample = 0; sample < samples; ++sample) {
    PrintDraw(list.at(0), mixer ? &*mixer : nullptr, size, seed, sample);
  }
  return absl::OkStatus();
}

int Run() {
  std::string text;
  while (std::getline(std::cin, text)) {
    std::istringstream line(text);
    std::string what;
    line >> what;
    const Status done = what == "render"   ? Render(&line, image::Exif::kIgnore)
                        : what == "shown"  ? Render(&line, image::Exif::kApply)
                        : what == "values" ? Values(&line)
                        : what == "draws"  ? Draws(&line)
                        : what == "time"   ? Time(&line)
                                           : Place(&line);
    if (!done.ok()) std::printf("error: %s\n", Message(done).c_str());
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace ringmaster

int main() { return ringmaster::Run(); }
