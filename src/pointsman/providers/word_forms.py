"""Forms of words that a stemmer leaves apart: irregular verbs and plurals, and British spellings.

Forms that are words of their own in requests for tools (`left`, `saw`, `bound`, `fed`) are not listed.
"""

from __future__ import annotations

from collections.abc import Callable

# The base form, and then its irregular forms.
_IRREGULAR = """
    become became
    begin began begun
    break broke broken
    bring brought
    build built
    buy bought
    catch caught
    choose chose chosen
    come came
    deal dealt
    draw drew drawn
    drink drank drunk
    drive drove driven
    eat ate eaten
    fall fell fallen
    fight fought
    find found
    fly flew flown
    forget forgot forgotten
    freeze froze frozen
    get got gotten
    give gave given
    go went gone
    grow grew grown
    hang hung
    hear heard
    hide hid hidden
    hold held
    keep kept
    know knew known
    lend lent
    lose lost
    make made
    meet met
    override overrode overridden
    overwrite overwrote overwritten
    pay paid
    rebuild rebuilt
    rerun reran
    rewrite rewrote rewritten
    ride rode ridden
    rise rose risen
    run ran
    say said
    seek sought
    sell sold
    send sent
    show shown
    sing sang sung
    sleep slept
    speak spoke spoken
    spend spent
    stand stood
    steal stole stolen
    swim swam swum
    take took taken
    teach taught
    tell told
    think thought
    throw threw thrown
    understand understood
    undo undid undone
    wear wore worn
    win won
    withdraw withdrew withdrawn
    write wrote written

    child children
    criterion criteria
    foot feet
    half halves
    index indices
    knife knives
    life lives
    man men
    matrix matrices
    mouse mice
    person people
    shelf shelves
    tooth teeth
    vertex vertices
    wife wives
    woman women
"""
# The American spelling, and then the British one. `-ise` and `-yse` follow a rule, see `base_form`.
_BRITISH = """
    airplane aeroplane
    aluminum aluminium
    artifact artefact
    behavior behaviour
    catalog catalogue
    center centre
    check cheque
    color colour
    defense defence
    dialog dialogue
    enroll enrol
    favor favour
    favorite favourite
    fiber fibre
    flavor flavour
    fulfill fulfil
    gray grey
    harbor harbour
    honor honour
    humor humour
    inquiry enquiry
    installment instalment
    jewelry jewellery
    judgment judgement
    kilometer kilometre
    labor labour
    license licence
    liter litre
    meter metre
    mold mould
    neighbor neighbour
    neighborhood neighbourhood
    offense offence
    pajamas pyjamas
    pediatric paediatric
    practice practise
    program programme
    rumor rumour
    theater theatre
    tire tyre
"""
_SHORTEST_ISE = 6  # letters of the stem: `organis`, but not `this` or `paris`


def base_forms(stem: Callable[[str], str]) -> dict[str, str]:
    """The stems of irregular forms and British spellings, each with the stem that stands for it."""
    found: dict[str, str] = {}
    for line in (_IRREGULAR + _BRITISH).split("\n"):
        base, *forms = map(stem, line.split()) if line.strip() else ("",)
        found.update((form, base) for form in forms if form != base)
    return found


def american(stem: str) -> str:
    """`organis` as `organiz`, `analys` as `analyz`; a stem of another kind (`promis`) is changed alike everywhere."""
    return f"{stem[:-1]}z" if len(stem) >= _SHORTEST_ISE and stem.endswith(("is", "ys")) else stem
