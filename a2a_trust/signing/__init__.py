"""Sign and verify Agent Cards."""

from a2a_trust.base.exports import TYPE_CHECKING, lazy

if TYPE_CHECKING:
    from a2a_trust.signing.forms import Form as Form
    from a2a_trust.signing.lines import verify_lines as verify_lines
    from a2a_trust.signing.sign import SignedCard as SignedCard, sign_card as sign_card, sign_cards as sign_cards
    from a2a_trust.signing.verify import CardVerifier as CardVerifier, Coverage as Coverage
    from a2a_trust.signing.verify import VerifiedCard as VerifiedCard, verify_card as verify_card
    from a2a_trust.signing.verify import verify_cards as verify_cards
else:
    __getattr__, __dir__ = lazy(__name__, {
        "signing.forms": "Form", "signing.lines": "verify_lines", "signing.sign": "SignedCard sign_card sign_cards",
        "signing.verify": "CardVerifier Coverage VerifiedCard verify_card verify_cards",
    })  # fmt: skip
