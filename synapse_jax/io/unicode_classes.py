"""Character classes of Unicode 15.1, the version by which llama.cpp cuts text.

A table of our own, because every Python and every regex library brings another
version: a letter that a later Unicode added would be cut differently.
Made by tools/update_unicode_classes.py.
"""

from __future__ import annotations

import base64
import functools
import sys
import zlib

import numpy as np

SPACE, OTHER, NUMBER, LETTER, PUNCTUATION, MARK, SYMBOL = 0x0B, 0xD0, 0xD1, 0xD2, 0xD3, 0xD4, 0xD5
"""Classes of characters from U+0080 on, as bytes. A space is a vertical tab: white space in ASCII."""

# Runs of one class: length in base-128 digits, lowest first, then the class.
_PACKED = (
    "c-nnfTZmp)6=t8a&-K5}Ei=g^GxH~%+%uWnlWMGEV<V+f1+gVQC}LH-fCU9XU!)ZKP%BEohdva%&<8=NFP8Kvh$47_wQt2I34#|;"
    "icg^reenC%Ie#(<)`va+Is3BK+G~C5TkA|AX0VE3LXk|!lJO>(WW=V-;n!z;bDYhc2`k>D4UFIC-lm}+r@~h}f-#?-jRl@EpNXXq"
    "Z>1BLdn5RjC5%sC$BR5r#n(7@1iOtd!*M9eB!}Xyh_e`3KTND;KV(_#n8ywpguQ9NHOa$CzbCfNhRmDzIn`T5=u2gUCD9~{-`3@x"
    "wu}R{nYixv$4qW`$naxn-9g`Amq|HJV@J%=vbR`kFmj9nyC=}L4{un<)4&(97bi;JNF7i3z0i3uUeetQkv6o@o`n`po8zq1kWAk!"
    "<JOgWB<G!=jk~di!P7Nn;5qEbDFN2uR4QE`nr@er^zJTc+1;TMrJxMmo8!G=M4+*vw1{}Xcdg24RFAn&PSIOcV?EbFuT3ah?IA!a"
    "My+3e@MgPZ+`CzYasR!Dn$oqpk2lKI5{uugM@**AoX=&58yC0@HCnZ(#L2OYT%8K6)cs8WQJK4|-Sqn_SfQH5bk?c`xJ9Vc4(tlM"
    "CA9b5VYifW=I8DXe2YV@%{+OWsM~dhV7FX}mFsT4=!lzceE~NEjx-Lmtn#_WpT1=rYv@DFXnh#U8A!<>+XCMe;{$wU;qYC5A^%jG"
    ">283%L~y3_oTF8gX8n}-OA{t{Ku*OnEzu8gHjq#1(M@=LNi(rvw#X)J!g`5J%~BCS6VQLsV-K>d48UcyngzL93Z94~Kcp9!rO2!!"
    "YD=NFJqbkrDbt{5eNuGK$NS%d|6^@}--r9>Yo5?*!jj7o^fs096lO{WF8te)m%_XU!GSw+dBW!)u^L&h0IM2Vq>Z7$TZRaZ`uOqr"
    "f}cimK~DeBkMLTlV-RwU44-d65-<`EF`saw>%J9`qYM$Bp~eX4MTFKh0s}b(U#<eR0~mWKtthKx;i7LLagB(MGc8phCuXt{&jQ)o"
    "ejc&NiPzAkCN|_iTzlP*l-o}EF*wqOO++D=0veeyt=q({8`yY~PV#lAiMX%_@j?6)9m;KT%lMu6qpWw_k^Z;tT|OHdn7i0zIP)dt"
    "`kW`L`(aNS;VqMH9&9Cp0XQ;b_-h7B@Z<<%7|dW!SWs}vDVvj>^+q@^2h#*RI?>8uS$<O6>nnWOSDJ1xx&y3RUtrDZ+<9<i0j9L_"
    "4*rBSh<(?jeKJUU<f?lzExUi(G!E<TELJvB8(z-Sa`+&&PBC#OgZWb!{-yLc_&-_2Z~@O6WZ7=qUh(8V6UK<y3MxR=Gv9lSY23y="
    "r>I)Pa7b36;zk<ETPCf_TrvZ~3|Zh>-C$DVkp2PCN;xj1RatQj@}S$pr!a7BrjLA@kWJRLY3euA0HB-m8;NPYo@%7@#7$G{j^g)L"
    "mTsN*JL#ogu=HF`jhqHRUIGeGp;%>>WSdnl0FMFDj@LOGOW<ZDH8AFj7&}mVk8SoM>5SGBVv2}H9Du>nS)}3xZ*ew@=TH%A&4f}G"
    "fIMcF(R$sw17NWXZN(_U^svU72)vIYup&eTDh3>Zop>&kUB}2=YOH6~5%F08KFB!dG!t{J{Dtx`-}jRD!+`k~$iS`QyBqgn2WO@+"
    "@g!eYX3hGn|Jl=ih>~FCtbhJdd7EkSWq$-mhHyZk?F1n@>gm_)D#l+$Q#2?4!jUis&t-CnxJgsivNRXlP|93<2sa(~JZ#uo0Et#b"
    "y}%ZV*eEfqQaux8wWB4B)vi}#ISx1Ax_j5kv}B?+!x#y1J%m8)2kCXTO|WO|56QQ2ha3vGKpIVY*v+Hwqah=Zmr2{Qg@8T>euB8O"
    "=mAXJkC;robq)JDu&HqcIHQP#tn>PT6$7)Oa3|zdCJUX&NseP^Z!UO-dZ0GkYZ&f-zb0>>cA=waA#1Pl%L%QLk9FjZ=Tm)uKou*h"
    "xppgvU*$HSq;Y5ZtD-k>%jh$(6RtzR!VdBmxB}wmfS%J%t3PmxOec<&!Pc~}fWu>hE};n(XPhF`O?kg`07ycdz{w5b3TKC9vZh;v"
    "j@m6C(iRoFavzt+{bf1tM;H|{18zVzwC**~yX&r{tu9P`0xH)4bT)y@D7V%XVOfin4M${;uiTQ5Zt{51Phy3rtvl1TxtO(a3uj2A"
    "Agnk-vs$U|^SFtmAtP9}x7uPpMEVa#Wu3vQMXFi_eXG5`mOfc>188U4I|L0-lZlV)s>NNzfPMgZ8+!`XXWz3W)SK>V31>}Qp=A_R"
    "p5-gPXi#SsU{axw*PH;ytfTu`q6vW)fd341QdSdJz=kNp*f6hUd!TlV!XlD-L=p%rtC#Q@f$o9D*)fAEf0HPh;M&i~j$d>`HQV&H"
    "FVkMCRAgjbAIDw_3K|Hzu6vKF0aff=hTI@$#bfOL7-ju-fjRNCpHst%FajD7mT;$Q`3`H7U9$|MAzyQB7}zc>V|E-Lzw5grFeKN8"
    "kZr6gR1lS#8r(5O3U;eS>>B-Fq0@vFS<v1W2S`zeeCOm5eEXDk^?TeJD8htSD*pxf8W358f&9k!KQ75<L0ltwz4oZs;O$BL`G)+?"
    "`kU9}riBXjIvqoQOrJ{8PDj5j&Oi^lL;Vs=t#-=jv;pD*R=r-p;VZ!7=h2i|ZL%-(BLybzNY*=Z0JF#P&Nia`R^v~=U;lVaK{s>C"
    "PcssdU+dfYF&1n2Uhbb?kgq@u+X=QmEmsqB?DnRdM!Z%~LB5f$${iYZ6x?_<;llzSj5Q(w0*UMRX#4<LhDQ^KA$<#ZFx2rhYUV!o"
    "f{{-``$uM9TRqfi*>KipV|=J@QS1KwK%X*2|Lw;)<}R`eElU4g{r`RmxO471HeE)QJr~)9j}yODi!h<r0d1)f6k;NEz5aZM&K?$p"
    "JmL?++0V)r^~Xxd+0x>4D<gf!c{Zuw0MKNT95(ai?}Zv`?^X^YzvZpLjPba9xI=r7gddjjesmo<hIJoBRbdD6>+bOWUV!NtyzPZ{"
    "9VUpt+xt4s{DJ)sj@jA_6Lyz8%ARLw>ped2FQ5#5Ka*1^@Xw(6njr2IxQXL1a4>Q|HtC8m7r3Rt7jBluQl?jo{JFx+JPIO<;y3a9"
    "8FV+p#14O=zgH5H5p&1zyAHuwdJ?gPmN8y<h~iFbHLfw&iRXBk|7y9M4#Rujt>repg{Jc66u$TiFZSFPK>f@20p)L7|C2>|)%w2<"
    "<PWH}a(n9K&6DyU6MyjTK>iD=`Mj|"
)  # fmt: skip


@functools.cache
def class_table() -> np.ndarray:
    """uint8 [0x110000]: class of each code point; below U+0080 the code point itself."""
    packed = zlib.decompress(base64.b85decode("".join(_PACKED)))
    lengths, classes = [128], [0]
    length = shift = 0
    digits = iter(packed)
    for digit in digits:
        length |= (digit & 127) << shift
        shift += 7
        if digit < 128:
            lengths.append(length)
            classes.append(next(digits))
            length = shift = 0
    table = np.repeat(np.array(classes, np.uint8), lengths)
    table[:128] = np.arange(128)
    assert table.size == sys.maxunicode + 1
    table.flags.writeable = False
    return table


def collapse(text: str) -> bytes:
    """One byte a character: ASCII as it is, anything else its class. Surrogates count as OTHER."""
    if text.isascii():
        return text.encode()
    return class_table()[np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")].tobytes()
