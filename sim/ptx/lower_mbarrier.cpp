// mbarrier.*, and how cp.async tells one that its copies are done.
#include <optional>

#include "sim/ptx/lower.h"

namespace tensor_fusion::sim::ptx {

bool Lowerer::mbarrier(const Instruction& in, Modifiers& m) {
  if (m.type() != Type::b64) return unsupported(in);
  for (const std::string_view word :
       {"release", "acquire", "relaxed", "cta", "cluster", "gpu", "sys", "noComplete", "mbarrier"})
    m.take(word);
  if (m.take("pending_count")) {
    if (!operands(in, 2, 2)) return false;
    const Reg state = use(in.operands[1], Type::u64);
    const Reg d = def(in.operands[0], Type::u32);
    if (state == kNoReg || d == kNoReg) return false;
    effect(pending_count_effect(), d, state).varying = true;
    return true;
  }
  const bool of_copies = m.take("async");  // cp.async…: its copies are done when it is reached
  const bool drops = m.take("arrive_drop"), arrives = m.take("arrive");
  const bool expects = m.take("expect_tx");
  const bool tests = m.take("test_wait") || m.take("try_wait");
  std::optional<Mbarrier> action;
  if (m.take("init"))
    action = Mbarrier::init;
  else if (m.take("inval"))
    action = Mbarrier::inval;
  else if (m.take("complete_tx"))
    action = Mbarrier::bytes_came;
  else if (tests)
    action = m.take("parity") ? Mbarrier::test_parity : Mbarrier::test_state;
  else if (drops)
    action = Mbarrier::drop;
  else if (arrives)
    action = expects ? Mbarrier::arrive_expect : Mbarrier::arrive;
  else if (expects)
    action = Mbarrier::expect;
  if (!action || (drops && expects)) return unsupported(in);
  AddressSpace space = AddressSpace::generic;
  bool param = false;
  memory_space(m, space, param);
  const bool answers = !of_copies && (tests || drops || arrives);
  if (!operands(in, answers ? 2 : 1, answers ? 4 : 2)) return false;
  const std::size_t place = answers ? 1 : 0;
  Address at;
  if (!address(in.operands[place], space, false, at)) return false;
  const Reg where = make(8);
  alu({.op = AluOp::add, .type = Type::u64}, table_.integer, where, at.base,
      value(static_cast<std::uint64_t>(at.offset), 8));
  const bool counted = in.operands.size() > place + 1;
  // A copy that is done arrives for itself alone, and only where it was counted beforehand.
  if (of_copies && !m.take("noinc")) return true;
  const Reg count = !counted                          ? value(1, 4)
                    : *action == Mbarrier::test_state ? use(in.operands[place + 1], Type::u64)
                                                      : use(in.operands[place + 1], Type::u32);
  Reg d = kNoReg;
  if (answers) d = def(in.operands[0], tests ? Type::pred : Type::u64);
  if (count == kNoReg || (answers && d == kNoReg)) return false;
  if (tests && !counted) return unsupported(in);
  program.may_spin |= tests;
  effect(mbarrier_effect(), d, where, count, kNoReg,
         static_cast<std::int64_t>(*action) | static_cast<std::int64_t>(space) << 8)
      .varying = true;
  return true;
}

}  // namespace tensor_fusion::sim::ptx
